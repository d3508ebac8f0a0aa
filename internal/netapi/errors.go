package netapi

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"strconv"

	"github.com/brinebus/brine/internal/rpc"
)

// failure is an error that has its status and what its reader is told.
type failure struct {
	status  int
	text    string
	allow   string // methods, for 405
	retry   string // seconds after which it may be tried again; "" is not said
	because error  // for the log
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.because }

func problem(status int, format string, args ...any) error {
	return &failure{status: status, text: fmt.Sprintf(format, args...)}
}

// because is a problem whose cause is told in the log only.
func because(err error, status int, format string, args ...any) error {
	return &failure{status: status, text: fmt.Sprintf(format, args...), because: err}
}

// refused is the answer to somebody whom the master does not let in; text is what a
// refusal says.
func refused(err error, text string) error {
	var f *failure
	switch {
	case errors.As(err, &f):
		return err
	case rpc.CodeOf(err) == rpc.Denied:
		return because(err, http.StatusUnauthorized, "%s", text)
	case rpc.CodeOf(err) == rpc.Busy:
		return &failure{status: http.StatusTooManyRequests, text: "Too many logins have failed: wait a moment.", retry: "2", because: err}
	}
	return because(err, http.StatusServiceUnavailable, noMaster)
}

// reason is what the log has of an error.
func reason(err error) string {
	var f *failure
	if errors.As(err, &f) && f.because != nil {
		return f.because.Error()
	}
	return err.Error()
}

// The words of Salt that its clients know.
const (
	noPermission  = "No permission -- see authorization schemes"
	noCredentials = "No authentication credentials given"
	noAccess      = "Could not authenticate using provided credentials"
	authorization = "Authorization error occurred."
	notAuthentic  = "Authentication error occurred."
	noMaster      = "Salt Master is not available."
	wrongMethod   = "Specified method is invalid for this resource"
	noSuchURI     = "Nothing matches the given URI"
)

// statusOf is the status of an error of the master.
func statusOf(err error) int {
	switch rpc.CodeOf(err) {
	case rpc.Denied:
		return http.StatusUnauthorized
	case rpc.Usage, rpc.NotFound:
		return http.StatusBadRequest
	case rpc.Busy, rpc.Unavailable:
		return http.StatusServiceUnavailable
	}
	if errors.Is(err, rpc.ErrLost) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// errorPage has the form of CherryPy's, which clients look into.
func errorPage(status int, text string) string {
	title := strconv.Itoa(status) + " " + http.StatusText(status)
	return `<!DOCTYPE html>
<html>
<head>
    <meta http-equiv="Content-Type" content="text/html; charset=utf-8"></meta>
    <title>` + title + `</title>
</head>
<body>
<h2>` + title + `</h2>
<p>` + html.EscapeString(text) + `</p>
</body>
</html>
`
}
