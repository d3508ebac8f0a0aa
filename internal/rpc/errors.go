package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/brinebus/brine/internal/salt"
)

// Code is the kind of failure of an Error. The codes are part of the protocol: texts may
// change, codes do not.
type Code string

// The codes, and what they mean.
const (
	Denied      Code = "denied"      // not permitted
	Usage       Code = "usage"       // the request is invalid
	NoMatch     Code = "no-match"    // the target matches no minion
	NotFound    Code = "not-found"   // it does not exist
	Busy        Code = "busy"        // too many requests at once; it may succeed later
	Unavailable Code = "unavailable" // the daemon cannot do that now
	Internal    Code = "internal"    // a bug or a failure of the daemon; its log has the cause
)

// Error is a failure as it is sent: a stable code, a text, and a hint if there is one.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
	// Unsure means that the request, or a part of it, may have been carried out nevertheless.
	Unsure bool `json:"unsure,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Errorf returns an Error. If an argument is an error with a hint, the first hint is kept,
// whatever verb prints it.
func Errorf(code Code, format string, args ...any) *Error {
	e := &Error{Code: code, Text: fmt.Errorf(format, args...).Error()}
	for _, a := range args {
		if err, ok := a.(error); ok && e.Hint == "" {
			e.Hint = salt.Hint(err)
		}
	}
	return e
}

// WithHint returns a copy of e with the hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Unsure reports whether the request, or a part of it, may have been carried out although it
// has failed with err.
func Unsure(err error) bool {
	var e *Error
	return errors.Is(err, ErrLost) || errors.As(err, &e) && e.Unsure
}

// errNobody is what a server says if nobody has subscribed to a request.
var errNobody = &Error{Code: Unavailable, Text: "the daemon does not serve this request"}

// Answered reports whether err, of a request, is an answer of the daemon: so it lives, whatever it
// has refused, or could not do.
func Answered(err error) bool {
	var e *Error
	return errors.As(err, &e) && e != errNobody
}

// Permanent reports whether the same request would fail again in the same way.
func (e *Error) Permanent() bool { return e.Code == Denied || e.Code == Usage || e.Code == NotFound }

// CodeOf returns the code of the Error in err, Internal for another error and "" for nil.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	}
	return Internal
}

// publicError is what of an error is sent. The cause of an unexpected one is not: the client gets
// the code and a general text.
func publicError(err error) *Error {
	var e *Error
	var unanswered salt.Unanswered
	switch {
	case errors.As(err, &e):
	case errors.As(err, &unanswered):
		e = &Error{Code: Unavailable, Text: unanswered.Error(), Hint: salt.Hint(err), Unsure: true}
	case errors.Is(err, context.DeadlineExceeded):
		e = &Error{Code: Unavailable, Text: "the daemon did not get an answer in time, for example from its store", Hint: "the daemon or its disk is overloaded: try again; its log names what is late", Unsure: true}
	default:
		e = &Error{Code: Internal, Text: "the daemon failed to do this", Hint: "its log names the cause"}
	}
	return e
}

func (e *Error) encode() []byte {
	b, _ := json.Marshal(e) // three strings can always be marshalled
	return b
}

func decodeError(b []byte) error {
	e := &Error{Code: Internal}
	if err := json.Unmarshal(b, e); err != nil {
		return fmt.Errorf("unreadable error from the daemon: %w", err)
	}
	if e.Code == "" {
		e.Code = Internal // otherwise there would be no exit code for it
	}
	if e.Text == "" {
		e.Text = "the daemon failed to do this, and does not say why"
	}
	return salt.WithHint(e, e.Hint)
}
