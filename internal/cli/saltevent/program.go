package saltevent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// program is what exec runs for each event.
type program struct {
	args   []string
	limit  time.Duration // of one run
	env    []string      // of every run
	stdout io.Writer
	stderr io.Writer
}

// Bounds of one run.
const (
	keptStderr = 8 << 10         // bytes of its last words, for a dead letter
	termGrace  = 5 * time.Second // from SIGTERM to SIGKILL
)

// run runs the program once, in a process group of its own, of which nothing is
// left when it returns. stderr is the end of what it printed there.
func (p *program) run(ctx context.Context, stdin []byte, vars []string) (stderr string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("it ran longer than %s and was ended", p.limit))
	defer cancel()
	last := &lastWords{limit: keptStderr}
	c := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(stdin), p.stdout, io.MultiWriter(p.stderr, last)
	c.Env = append(append(c.Env, p.env...), vars...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = termGrace
	err = c.Run()
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // what it left behind; mostly nothing
	}
	if ctx.Err() != nil {
		return last.String(), context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrWaitDelay) { // a child that outlived it held its output
		err = nil
	}
	return last.String(), err
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
