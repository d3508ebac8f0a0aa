package eventhandler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/posix"
)

// Program is a program that handles events, each in its own process.
type Program struct {
	Args   []string
	Limit  time.Duration // of one run
	Env    []string      // of every run
	Stdout io.Writer
	Stderr io.Writer
}

// Limits of one run.
const (
	keptStderr = 8 << 10         // bytes of the end of stderr, for a dead letter
	termGrace  = 5 * time.Second // from SIGTERM to SIGKILL
)

// Run runs the program once, in its own process group, of which nothing is left when it
// returns. stderr is the end of what it printed there.
func (p *Program) Run(ctx context.Context, stdin []byte, vars []string) (stderr string, err error) {
	stopped := ctx.Err
	ctx, cancel := context.WithTimeoutCause(ctx, p.Limit, fmt.Errorf("it ran longer than %s and was ended", p.Limit))
	defer cancel()
	last := &lastWords{limit: keptStderr}
	in, err := whole(stdin)
	if err != nil {
		return "", err
	}
	defer in.Close()
	c := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = in, p.Stdout, io.MultiWriter(p.Stderr, last)
	c.Env = append(append(c.Env, p.Env...), vars...)
	posix.Group(c)
	c.Cancel = func() error { return posix.KillGroup(c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = termGrace
	err = c.Run()
	if c.Process != nil {
		_ = posix.KillGroup(c.Process.Pid, syscall.SIGKILL) // processes that it has left behind; mostly none
	}
	if stopped() != nil && c.ProcessState != nil && c.ProcessState.Success() {
		return last.String(), nil // it has done its work, and must not do it again
	}
	if ctx.Err() != nil {
		return last.String(), context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrWaitDelay) { // a child that outlived it kept its output open
		err = nil
	}
	return last.String(), err
}

// whole is a file without a name that contains the input of a program. Through a pipe, a
// program whose parent is killed would see the end of its input too early, and take half an
// event, or nothing, for the whole.
func whole(input []byte) (*os.File, error) {
	f, err := nameless()
	if err != nil {
		return nil, fmt.Errorf("make the input of a program: %w", err)
	}
	if _, err := f.Write(input); err != nil {
		return nil, errors.Join(fmt.Errorf("make the input of a program: %w", err), f.Close())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("make the input of a program: %w", err), f.Close())
	}
	return f, nil
}

// lastWords keeps the end of what is written to it.
type lastWords struct {
	limit int
	b     []byte
}

// Write implements io.Writer.
func (w *lastWords) Write(b []byte) (int, error) {
	w.b = append(w.b, b...)
	if extra := len(w.b) - w.limit; extra > 0 {
		w.b = append(w.b[:0], w.b[extra:]...)
	}
	return len(b), nil
}

func (w *lastWords) String() string { return string(bytes.ToValidUTF8(w.b, []byte("?"))) }
