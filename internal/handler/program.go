package handler

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

// Program is a program that handles events, each in a process of its own.
type Program struct {
	Args   []string
	Limit  time.Duration // of one run
	Env    []string      // of every run
	Stdout io.Writer
	Stderr io.Writer
}

// Bounds of one run.
const (
	keptStderr = 8 << 10         // bytes of its last words, for a dead letter
	termGrace  = 5 * time.Second // from SIGTERM to SIGKILL
)

// Run runs the program once, in a process group of its own, of which nothing is
// left when it returns. stderr is the end of what it printed there.
func (p *Program) Run(ctx context.Context, stdin []byte, vars []string) (stderr string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Limit, fmt.Errorf("it ran longer than %s and was ended", p.Limit))
	defer cancel()
	last := &lastWords{limit: keptStderr}
	c := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(stdin), p.Stdout, io.MultiWriter(p.Stderr, last)
	c.Env = append(append(c.Env, p.Env...), vars...)
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
