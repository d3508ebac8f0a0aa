package cli

import (
	"errors"
	"fmt"
	"syscall"
)

// Exit codes of every binary; the man pages carry this table.
const (
	OK           = 0   // everything that was asked for succeeded
	Failed       = 1   // some function failed, or the program could not do its work
	NoMatch      = 2   // no minion matched the target
	NoReturn     = 3   // some minion did not answer or is not connected
	Usage        = 64  // wrong command line or configuration, or what would be refused again (EX_USAGE of sysexits.h, as in Salt)
	Unavailable  = 69  // no daemon or bus to talk to, or nothing can be stored (EX_UNAVAILABLE)
	NoPermission = 77  // not permitted, or a refused key (EX_NOPERM, as in Salt)
	Interrupted  = 130 // ended by Ctrl-C (128 + SIGINT)
	BrokenPipe   = 141 // nobody reads the output any more (128 + SIGPIPE)
	Terminated   = 143 // ended by SIGTERM (128 + SIGTERM)
)

// failure is an error with an exit code; err may be nil.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// Fail gives err an exit code. A nil err stays nil; the outermost code counts.
func Fail(code int, err error) error {
	if err == nil {
		return nil
	}
	return &failure{code, err}
}

// Reported reports whether nothing more is to be printed about err, which is not nil.
func Reported(err error) bool { return isQuiet(err) }

// Exit is an error that ends the program with code and prints nothing: for a command that has
// printed already what went wrong. With code OK it is nil.
func Exit(code int) error {
	if code == OK {
		return nil
	}
	return &failure{code: code}
}

// Usagef is the error for a wrong command line, formatted like fmt.Errorf.
func Usagef(format string, args ...any) error {
	return Fail(Usage, fmt.Errorf(format, args...))
}

// Code returns the exit code for err: OK for nil, that of a signal or a broken pipe, the one
// set by Fail, otherwise Failed.
func Code(err error) int {
	var signal *SignalError
	var f *failure
	switch {
	case err == nil:
		return OK
	case errors.As(err, &signal):
		return 128 + int(signal.Signal)
	case errors.Is(err, ErrBrokenPipe):
		return BrokenPipe
	case errors.As(err, &f):
		return f.code
	}
	return Failed
}

// isQuiet reports whether nothing is printed about err: the user knows that they pressed Ctrl-C
// or closed the pipe, and before Exit something was printed.
func isQuiet(err error) bool {
	var signal *SignalError
	var f *failure
	if errors.As(err, &signal) || errors.Is(err, ErrBrokenPipe) {
		return true
	}
	return errors.As(err, &f) && f.err == nil
}

// SignalError is the cause of a context that Main ended, see context.Cause.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return "ended by signal: " + e.Signal.String() }

// ErrBrokenPipe is returned by Env.Stdout when its reader is gone.
var ErrBrokenPipe = errors.New("nobody reads the output any more")
