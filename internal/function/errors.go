package function

import (
	"errors"
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// ErrUnavailable is wrapped by errors about a function that exists but cannot work here: the
// minion lacks a service, or the machine a program.
var ErrUnavailable = errors.New("not available here")

// ErrRefused is wrapped by errors about what this minion or its user may not do.
var ErrRefused = errors.New("refused")

// CodeRefused is the return code of a function after a refusal: the exit code of the tools for
// that.
const CodeRefused = 77

// ArgumentError means that the arguments of a call do not match the signature. The function has
// not run.
type ArgumentError struct {
	Function  salt.Function
	Problem   string // `missing required argument "text"`
	Signature string // `test.echo(text)`
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("Passed invalid arguments to %s: %s\nUsage: %s", e.Function, e.Problem, e.Signature)
}

// UnknownError means that there is no such function.
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

// misspelt reports whether an existing function was most likely meant, and not one of the many
// that a stands for.
func (e *UnknownError) misspelt(a Absent) bool {
	return a.Name != string(e.Function) && len(e.Nearest) > 0 && salt.Edits(e.Nearest[0], string(e.Function)) == 1
}

// ExceptionError is a bug rather than an expected failure: a panic of a function, or what
// test.exception makes on purpose.
type ExceptionError struct{ Text string }

func (e *ExceptionError) Error() string { return e.Text }

// invocationError is a call whose arguments match the signature but not each other or the
// machine; Salt's SaltInvocationError.
type invocationError struct{ error }

func (e invocationError) Unwrap() error { return e.error }

// Invalid makes an invocationError.
func Invalid(format string, args ...any) error {
	return invocationError{fmt.Errorf(format, args...)}
}

// IsUsage reports whether a call has failed since its arguments do not match the signature or each other.
func IsUsage(err error) bool {
	var arguments *ArgumentError
	var invocation invocationError
	return errors.As(err, &arguments) || errors.As(err, &invocation)
}

// Unavailable is the error for a missing service of this minion; what is a noun.
func Unavailable(what string) error {
	return fmt.Errorf("%s: %w", what, ErrUnavailable)
}

// answer is the text of err for the caller of function.
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
