// Package process runs programs: argument vectors, never a shell, each in its own process group
// that ends as a whole, with limited output that is kept byte for byte. It does not decide what is
// run or as which user, and it logs nothing.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/posix"
)

const (
	// MaxOutput limits how much of each stream of a program is kept, in bytes. The whole output
	// is in memory and is sent in one answer; larger output belongs in a file.
	MaxOutput = 1 << 30

	// killGrace is the time between SIGTERM and SIGKILL.
	killGrace = 2 * time.Second

	// outputGrace is how long output is read after the program has ended, if a child of it still
	// holds the pipe open. Later output of the child is read and dropped, so that it does not die
	// of SIGPIPE.
	outputGrace = time.Second
)

var (
	errTimeout = errors.New("timed out")
	// ErrOutput is the error of Run if a program was ended since it wrote more than the limit. What was kept is in
	// the Ending.
	ErrOutput = errors.New("the output exceeds its limit: write it to a file instead")
)

// Program is a program to run once, in its own process group.
type Program struct {
	Args       []string          // Args[0] is looked up in PATH
	Dir        string            // "" for that of this process
	Env        []string          // the whole environment; nil for that of this process
	Stdin      *string           // nil for an empty one
	Files      []*os.File        // open in the program as descriptors 3, 4 and so on
	Credential *posix.Credential // nil for that of this process
	Umask      string            // octal digits, "" for that of this process
	Chroot     string
	Timeout    time.Duration // 0 for none
	Merge      bool          // write stderr into stdout, in the order written
	Limit      int           // bytes to keep of each stream; 0 for MaxOutput
	Watcher    Watcher       // gets the output while the program runs; may be nil
}

// Watcher gets the output of a program while it is read. While Wrote runs, the program's pipe is
// not read: the program is slowed down as by any slow reader. Began is called before a program starts, Ended
// when it has ended or was not started; while no program runs, Wrote must not block.
type Watcher interface {
	Began()
	Wrote(toStderr bool, b []byte)
	Ended()
}

// Ending is the result of a program.
type Ending struct {
	PID            int
	Code           int // minus the signal's number if a signal ended it
	Stdout, Stderr string
	TimedOut       bool
}

// Run runs the program to its end and returns its output, byte for byte. When ctx ends, and after
// the timeout, the whole process group gets SIGTERM, then SIGKILL. If ctx has ended, Run returns
// its cause as an error; a timeout is an Ending. A child that the program leaves running continues.
func (p *Program) Run(ctx context.Context) (Ending, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if p.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, p.Timeout, errTimeout)
		defer stop()
	}
	cmd, err := p.command()
	if err != nil {
		return Ending{}, fmt.Errorf("run %q: %w", p.Args[0], err)
	}
	began, ended := func() {}, func() {}
	if p.Watcher != nil {
		began, ended = p.Watcher.Began, p.Watcher.Ended
	}
	began()
	stdout, stderr, err := p.start(cmd, func() { cancel(ErrOutput) })
	if err != nil {
		ended()
		return Ending{}, err
	}
	cause := wait(ctx, cmd)
	ended()
	late, stop := context.WithTimeout(context.Background(), outputGrace)
	defer stop()
	e := Ending{PID: cmd.Process.Pid, Code: exitCode(cmd.ProcessState), Stdout: stdout.take(late), Stderr: stderr.take(late)}
	if errors.Is(cause, errTimeout) {
		e.TimedOut, cause = true, nil
	}
	return e, cause
}

// command prepares the program without starting it.
func (p *Program) command() (*exec.Cmd, error) {
	args := p.Args
	if p.Umask != "" && runtime.GOOS == "windows" {
		return nil, posix.Unsupported("a umask")
	}
	if p.Umask != "" || p.Chroot != "" && !strings.Contains(args[0], "/") {
		// Only a process can change its own umask, and only a process within the new root can
		// search its PATH there.
		args = append([]string{"/bin/sh", "-c", `test -z "$0" || umask "$0" && exec "$@"`, p.Umask}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.Dir, p.Env, outputGrace
	cmd.ExtraFiles = p.Files
	posix.Group(cmd)
	if err := posix.RunAs(cmd, p.Credential, p.Chroot); err != nil {
		return nil, err
	}
	if p.Stdin != nil {
		cmd.Stdin = strings.NewReader(*p.Stdin)
	}
	return cmd, nil
}

// start starts the program and captures its output.
func (p *Program) start(cmd *exec.Cmd, overflow func()) (stdout, stderr *capture, err error) {
	limit := p.Limit
	if limit == 0 {
		limit = MaxOutput
	}
	stdout, out, err := newCapture(limit, overflow, p.watch(false))
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	stderr, diagnostics, err := &capture{}, out, nil
	if !p.Merge {
		if stderr, diagnostics, err = newCapture(limit, overflow, p.watch(true)); err != nil {
			return nil, nil, err
		}
		defer diagnostics.Close()
	}
	cmd.Stdout, cmd.Stderr = out, diagnostics
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("run %q: %w", p.Args[0], bareExecError(err))
	}
	return stdout, stderr, nil
}

// watch returns the function that passes one stream to the watcher, nil without one.
func (p *Program) watch(toStderr bool) func([]byte) {
	if p.Watcher == nil {
		return nil
	}
	return func(b []byte) { p.Watcher.Wrote(toStderr, b) }
}

// Detach starts the program in its own session and returns its pid. It continues after the job and
// the minion have ended; its output is dropped.
func (p *Program) Detach() (pid int, err error) {
	cmd, err := p.command()
	if err != nil {
		return 0, fmt.Errorf("run %q: %w", p.Args[0], err)
	}
	posix.Session(cmd)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("run %q: %w", p.Args[0], bareExecError(err))
	}
	go func() { _ = cmd.Wait() }() // ends with the program; its result is not used
	return cmd.Process.Pid, nil
}

// bareExecError removes the name of the program, which the message already has.
func bareExecError(err error) error {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// wait waits for the program, and ends it with its group if ctx ends first; then it returns the
// cause.
func wait(ctx context.Context, cmd *exec.Cmd) (cause error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	endGroup(cmd.Process.Pid, firstSignal(context.Cause(ctx)))
	<-done
	return context.Cause(ctx)
}

// firstSignal is the signal that a group gets before SIGKILL: the one that the cause names,
// otherwise SIGTERM.
func firstSignal(cause error) syscall.Signal {
	if named, ok := errors.AsType[interface {
		error
		Signal() syscall.Signal
	}](cause); ok {
		return named.Signal()
	}
	return syscall.SIGTERM
}

// endGroup ends every process of a group.
func endGroup(group int, signal syscall.Signal) {
	deadline := time.Now().Add(killGrace)
	for posix.KillGroup(group, signal) == nil && time.Now().Before(deadline) {
		signal = 0                        // only check whether a process is left
		time.Sleep(10 * time.Millisecond) // a group has no event to wait for
	}
	_ = posix.KillGroup(group, syscall.SIGKILL) // fails if none is left
}

func exitCode(s *os.ProcessState) int {
	if signal := posix.Signalled(s); signal != 0 {
		return -int(signal)
	}
	return s.ExitCode()
}

// capture reads a pipe to its end and keeps the output until take is called.
type capture struct {
	mu       sync.Mutex
	text     strings.Builder
	taken    bool
	limit    int           // of bytes to keep
	overflow func()        // called once when the limit is exceeded
	watch    func([]byte)  // gets everything; may be nil
	done     chan struct{} // closed at the end of the pipe; nil without one
}

// newCapture returns a capture and the pipe to write to, which the caller closes. Its reader ends
// when the last writer has closed the pipe.
func newCapture(limit int, overflow func(), watch func([]byte)) (*capture, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c := &capture{limit: limit, overflow: overflow, watch: watch, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer r.Close()
		_, _ = io.Copy(c, r) // Write does not fail, and a pipe ends with EOF
	}()
	return c, w, nil
}

// Write implements io.Writer. It never fails: if the reader stopped, the program would block.
func (c *capture) Write(b []byte) (int, error) {
	if c.keep(b); c.watch != nil {
		c.watch(b)
	}
	return len(b), nil
}

func (c *capture) keep(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.taken:
	case c.text.Len()+len(b) > c.limit:
		c.taken = true
		c.overflow()
	default:
		c.text.Write(b)
	}
}

// take returns the output up to the pipe's end or that of ctx.
func (c *capture) take(ctx context.Context) string {
	if c.done != nil {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = true
	return c.text.String()
}

// Failure returns the error of a program whose exit code is not 0.
func (e Ending) Failure(name string) error {
	text := strings.TrimSpace(e.Stderr)
	if text == "" {
		text = strings.TrimSpace(e.Stdout)
	}
	if text == "" {
		return fmt.Errorf("%s: exit code %d", name, e.Code)
	}
	return fmt.Errorf("%s: exit code %d: %s", name, e.Code, text)
}

// Beside returns the path of the program with that name in the directory of this one, where
// programs of one installation are. It does not check that it exists.
func Beside(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// daemonEnviron are variables that a service manager sets only for the minion: a program that
// inherited them could send notifications in its name.
var daemonEnviron = []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "INVOCATION_ID", "JOURNAL_STREAM"}

// Environ returns the minion's environment for its programs; with plainLocale, messages and sorting
// are those of the C locale.
func Environ(plainLocale bool) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		locale := name == "LANGUAGE" || name == "LANG" || strings.HasPrefix(name, "LC_")
		if !slices.Contains(daemonEnviron, name) && !(plainLocale && locale) {
			env = append(env, pair)
		}
	}
	if plainLocale {
		env = append(env, "LANG=C", "LC_ALL=C", "LANGUAGE=C")
	}
	return env
}
