package function

import (
	"errors"
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// ErrUnavailable is wrapped by errors that say a function exists but cannot
// work here: the minion lacks a service, or the machine a program.
var ErrUnavailable = errors.New("not available here")

// ErrRefused is wrapped by the errors of an EventBus for an event that this minion
// may not fire.
var ErrRefused = errors.New("refused")

// CodeRefused is the return code of a function that was refused something: the exit code
// that the tools have for what is not permitted.
const CodeRefused = 77

// ArgumentError says that a function was called with arguments that do not fit
// its signature. The function has not run.
type ArgumentError struct {
	Function  salt.Function
	Problem   string // `missing required argument "text"`
	Signature string // `test.echo(text)`
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("Passed invalid arguments to %s: %s\nUsage: %s", e.Function, e.Problem, e.Signature)
}

// UnknownError says that there is no such function.
type UnknownError struct {
	Function salt.Function
	Nearest  []string // what the caller may have meant, best first
	Cause    error    // why a program that would have it cannot be used; nil if there is none
}

func (e *UnknownError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", unknownPrefix(e.Function), e.Cause)
	}
	text := unknownPrefix(e.Function) + "."
	if a, ok := IsAbsent(e.Function); ok && !e.misspelt(a) {
		return text + " " + a.String()
	}
	if len(e.Nearest) > 0 {
		text += " Did you mean " + strings.Join(e.Nearest, " or ") + "?"
	}
	return text
}

// misspelt tells whether a function that there is was most likely meant, and not one of the
// many that a names at once.
func (e *UnknownError) misspelt(a Absent) bool {
	return a.Name != string(e.Function) && len(e.Nearest) > 0 && salt.Edits(e.Nearest[0], string(e.Function)) == 1
}

// ExceptionError is a defect rather than an expected failure: a panic of a
// function, or what test.exception makes on purpose.
type ExceptionError struct{ Text string }

func (e *ExceptionError) Error() string { return e.Text }

// invocationError is a call whose arguments fit the signature but not each
// other or the machine; Salt's SaltInvocationError.
type invocationError struct{ error }

func (e invocationError) Unwrap() error { return e.error }

// Invalid makes an invocationError.
func Invalid(format string, args ...any) error {
	return invocationError{fmt.Errorf(format, args...)}
}

// Unavailable says that this minion lacks what, a noun.
func Unavailable(what string) error {
	return fmt.Errorf("%s: %w", what, ErrUnavailable)
}

// answer is the text that the caller of function gets for err.
func answer(function salt.Function, err error) string {
	var (
		arguments  *ArgumentError
		unknown    *UnknownError
		exception  *ExceptionError
		invocation invocationError
	)
	switch {
	case errors.As(err, &arguments), errors.As(err, &unknown):
		return err.Error()
	case errors.As(err, &exception):
		return "The minion function caused an exception: " + err.Error()
	case errors.As(err, &invocation):
		return fmt.Sprintf("ERROR executing '%s': %v", function, err)
	}
	text := "ERROR: " + err.Error()
	if hint := salt.Hint(err); hint != "" {
		text += "\nHINT: " + hint
	}
	return text
}
