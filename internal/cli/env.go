// Package cli is what the binaries have in common: their streams, the shared options, exit
// codes, and how they talk to people.
//
// It knows no command of any binary: each has its own package below this one, which describes
// its command line by a Spec and passes it to Env.Run.
//
// How we talk to the terminal:
//
//   - Results go to standard output, all else to standard error: errors,
//     warnings, notes, questions, progress. With --out json there is nothing but
//     JSON on standard output.
//   - An error is one line, "salt-key: error: MISTAKE": lower case, no full
//     stop, what was tried and on what. Where there is a way out, it follows as
//     "salt-key: hint: REMEDY". Warnings and notes look the same. A usage text
//     is never thrown at somebody who made a mistake; -h prints it.
//   - What comes from elsewhere (ids, arguments, errors of a peer) is printed
//     with its control characters escaped.
//   - Silence is success. But on a terminal no command waits for more than a second
//     without saying what it waits for, see Env.Waiting. Elsewhere success writes
//     nothing to standard error, unless --progress asks for it.
//   - A question is asked only where an answer can come from: at the end of the
//     input it is an error that names the option to use instead.
//   - Colour is for terminals; NO_COLOR, --no-color and --force-color overrule.
//   - The exit code tells a script what the text tells a person.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// Env is the environment of a running command. Tests make their own with buffers.
type Env struct {
	Name   string   // of the program, "salt-key"
	Args   []string // the command line without the program's name
	Stdin  io.Reader
	Stdout io.Writer // results; fails with ErrBrokenPipe when nobody reads
	Stderr io.Writer // all else
	Getenv func(string) string

	// Which of the three streams is a terminal.
	StdinTTY, StdoutTTY, StderrTTY bool

	quiet, progress bool // set by the options of these names
}

// Talks reports whether notes are printed, not only errors and warnings: on a terminal, and
// with --progress. Elsewhere, in a log or a mail of cron, success prints nothing.
func (e *Env) Talks() bool { return !e.quiet && (e.StderrTTY || e.progress) }

// Main runs a program in the environment of this process and returns its exit
// code, for os.Exit. The context of run ends at SIGINT and SIGTERM with a
// *SignalError as its cause; a second signal ends the process at once.
//
// A broken pipe on standard output or error kills a tool by SIGPIPE, silently
// and with 141 in a shell, as it does cat. Where the parent has SIGPIPE ignored,
// and in a daemon (Spec.Daemon), the write fails instead; a tool then ends with
// the same code.
func Main(name string, run func(ctx context.Context, env *Env) int) int {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	return run(ctx, processEnv(name))
}

// processEnv describes this process.
func processEnv(name string) *Env {
	return &Env{
		Name:      name,
		Args:      os.Args[1:],
		Stdin:     os.Stdin,
		Stdout:    pipeWriter{os.Stdout},
		Stderr:    os.Stderr,
		Getenv:    os.Getenv,
		StdinTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		StdoutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		StderrTTY: term.IsTerminal(int(os.Stderr.Fd())),
	}
}

// untilSignal returns a context that ends at the first SIGINT or SIGTERM; after that both have
// their default effect again. A signal that the parent ignores stays ignored: a shell does that
// for background jobs of a script.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	arrived := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		if !signal.Ignored(s) {
			signal.Notify(arrived, s)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer signal.Stop(arrived)
		select {
		case s := <-arrived:
			cancel(&SignalError{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// pipeWriter distinguishes a broken pipe of the output from one of a socket.
//
// A program that was started with a closed output, as by ">&-", writes to /dev/null: the Go runtime opens that
// for it, and it cannot be told apart from a /dev/null that the caller has opened.
type pipeWriter struct{ w *os.File }

func (p pipeWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		err = ErrBrokenPipe
	}
	return n, err
}

// Report prints err and its hint, unless it needs no words, and returns its exit code, see
// Code.
func (e *Env) Report(err error) int {
	if err != nil && !isQuiet(err) {
		e.say("error", err.Error())
		e.say("hint", salt.Hint(err))
	}
	return Code(err)
}

// Warn prints a warning that does not stop the command, unless --quiet is given.
func (e *Env) Warn(err error) {
	if e.quiet {
		return
	}
	e.say("warning", err.Error())
	e.say("hint", salt.Hint(err))
}

// Note prints a note, formatted like fmt.Sprintf, if Talks is true.
func (e *Env) Note(format string, args ...any) {
	if !e.Talks() {
		return
	}
	e.say("note", fmt.Sprintf(format, args...))
}

// Reply prints the result of a question that the user has answered, wherever standard error
// goes.
func (e *Env) Reply(format string, args ...any) { e.say("note", fmt.Sprintf(format, args...)) }

// say prints each line of text as "NAME: kind: line". Empty text prints nothing. Write errors
// are ignored: there is no place left to report them.
func (e *Env) say(kind, text string) {
	if text == "" {
		return
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "%s: %s: %s\n", e.Name, kind, logging.Escape(strings.TrimSuffix(line, "\n")))
	}
	io.WriteString(e.Stderr, b.String())
}
