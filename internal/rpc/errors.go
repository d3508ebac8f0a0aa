package rpc

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/brinebus/brine/internal/salt"
)

// Code says what kind of failure an Error is. The codes are part of the
// protocol: text may change, codes do not.
type Code string

// The codes, with what the asking side makes of them.
const (
	Denied      Code = "denied"      // not permitted
	Usage       Code = "usage"       // the request makes no sense
	NoMatch     Code = "no-match"    // the target matches nobody
	NotFound    Code = "not-found"   // there is no such thing
	Busy        Code = "busy"        // too many requests at once; later is fine
	Unavailable Code = "unavailable" // the daemon cannot do that now
	Internal    Code = "internal"    // a fault of ours; the daemon's log has the cause
)

// Error is a failure as it travels: a stable code, a sentence, and where there
// is one a way out.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
	// Unsure says that what was asked for, or a part of it, may be done all the same.
	Unsure bool `json:"unsure,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Errorf returns an Error; the first hint of the arguments' errors is kept,
// whatever verb prints them.
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

// Unsure says whether what was asked for may be done, or a part of it, though err is the
// answer.
func Unsure(err error) bool {
	var e *Error
	return errors.Is(err, ErrLost) || errors.As(err, &e) && e.Unsure
}

// Permanent says whether the same request would fail in the same way again.
func (e *Error) Permanent() bool { return e.Code == Denied || e.Code == Usage || e.Code == NotFound }

// CodeOf returns the code of the Error within err, Internal for another error
// and "" for none.
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

// encodeError keeps the cause of an unexpected error on this side: the peer
// gets the code and a sentence that tells it nothing.
func encodeError(err error) []byte {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: Internal, Text: "the daemon failed to do this", Hint: "its log names the cause"}
	}
	b, _ := json.Marshal(e) // three strings always marshal
	return b
}

func decodeError(b []byte) error {
	e := &Error{Code: Internal}
	if err := json.Unmarshal(b, e); err != nil {
		return fmt.Errorf("unreadable error from the daemon: %w", err)
	}
	if e.Code == "" {
		e.Code = Internal // else it would have no exit code of its own
	}
	if e.Text == "" {
		e.Text = "the daemon failed to do this, and does not say why"
	}
	return salt.WithHint(e, e.Hint)
}
