package netapi

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"slices"
	"strconv"

	"github.com/brinebus/brine/client"
)

// failure is an error with its HTTP status and the text for the client.
type failure struct {
	status  int
	text    string
	allow   string // methods, for 405
	retry   string // seconds after which to try again; "" for no header
	kind    string // for the log: the text without what the client sent
	because error  // for the log
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.because }

func problem(status int, format string, args ...any) error {
	return &failure{status: status, text: fmt.Sprintf(format, args...), kind: format}
}

// because makes a failure whose cause only the log gets.
func because(err error, status int, format string, args ...any) error {
	return &failure{status: status, text: fmt.Sprintf(format, args...), because: err}
}

// refused is the answer to a login that the master refuses; text is the text of the refusal.
func refused(err error, text string) error {
	var f *failure
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, client.ErrDenied):
		return because(err, http.StatusUnauthorized, "%s", text)
	case errors.Is(err, client.ErrBusy):
		return &failure{status: http.StatusTooManyRequests, text: "Too many logins have failed: wait a moment.", retry: "2", because: err}
	}
	return because(err, http.StatusServiceUnavailable, noMaster)
}

// reason returns what is logged of an error: never a part of the path or of a header, where a
// session may be.
func reason(err error) string {
	var f *failure
	switch {
	case !errors.As(err, &f):
		return err.Error()
	case f.because != nil:
		return f.because.Error()
	case f.kind == "%s" && f.status == http.StatusBadRequest: // about a word of the body
		return http.StatusText(f.status)
	case f.kind != "" && f.kind != "%s":
		return f.kind
	}
	return f.text
}

// The texts of Salt that its clients know.
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

// statusOf returns the HTTP status for an error of the master.
func statusOf(err error) int {
	is := func(kinds ...error) bool {
		return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
	}
	switch {
	case is(client.ErrDenied):
		return http.StatusUnauthorized
	case is(client.ErrUsage, client.ErrNotFound):
		return http.StatusBadRequest
	case is(client.ErrBusy, client.ErrUnavailable, client.ErrLost):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// errorPage has the form of CherryPy's page, which clients parse.
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
