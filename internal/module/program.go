package module

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxOutput bounds what is kept of each stream of a program. The whole
	// output is held in memory and sent in one answer; beyond this the machine
	// suffers more than the caller gains, and a file is the better way.
	maxOutput = 1 << 30

	// killGrace is what a program gets between SIGTERM and SIGKILL.
	killGrace = 2 * time.Second

	// outputGrace is how long a program's output is read after it has ended,
	// when a child that it left behind still holds the pipe open. What the child
	// writes later is read and dropped, so that it does not die of SIGPIPE.
	outputGrace = time.Second
)

var (
	errTimeout = errors.New("timed out")
	errOutput  = fmt.Errorf("the output exceeds %d bytes: write it to a file instead", maxOutput)
)

// program is a program to run, once, in a process group of its own.
type program struct {
	args    []string  // args[0] is looked up in PATH
	dir     string    // "" for that of the minion
	env     []string  // the whole environment; nil for that of the minion
	stdin   *string   // nil for an empty one
	user    *identity // nil for that of the minion
	umask   string    // octal digits, "" for that of the minion
	chroot  string
	timeout time.Duration // 0 for none
	merge   bool          // write stderr into stdout, in the order written
}

// ending is what a program left.
type ending struct {
	pid            int
	code           int // minus the signal's number if one ended it
	stdout, stderr string
	timedOut       bool
}

// run runs the program to its end and returns what it wrote, byte for byte. At
// the end of ctx, and after the timeout, the whole process group gets SIGTERM,
// then SIGKILL; the first returns the cause of ctx as an error, the second an
// ending. A child that the program leaves behind lives on.
func (p *program) run(ctx context.Context) (ending, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if p.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, p.timeout, errTimeout)
		defer stop()
	}
	cmd := p.command()
	stdout, stderr, err := p.start(cmd, func() { cancel(errOutput) })
	if err != nil {
		return ending{}, err
	}
	cause := wait(ctx, cmd)
	late, stop := context.WithTimeout(context.Background(), outputGrace)
	defer stop()
	e := ending{pid: cmd.Process.Pid, code: exitCode(cmd.ProcessState), stdout: stdout.take(late), stderr: stderr.take(late)}
	if errors.Is(cause, errTimeout) {
		e.timedOut, cause = true, nil
	}
	return e, cause
}

// command prepares the program without starting it.
func (p *program) command() *exec.Cmd {
	args := p.args
	if p.umask != "" || p.chroot != "" && !strings.Contains(args[0], "/") {
		// Only a process can change its own umask, and only one within the new
		// root can search its PATH there.
		args = append([]string{"/bin/sh", "-c", `test -z "$0" || umask "$0" && exec "$@"`, p.umask}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, p.env, outputGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: p.chroot}
	if p.user != nil && !p.user.isSelf() {
		cmd.SysProcAttr.Credential = p.user.credential()
	}
	if p.stdin != nil {
		cmd.Stdin = strings.NewReader(*p.stdin)
	}
	return cmd
}

// start starts the program with its output captured.
func (p *program) start(cmd *exec.Cmd, overflow func()) (stdout, stderr *capture, err error) {
	stdout, out, err := newCapture(overflow)
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	stderr, diagnostics, err := &capture{}, out, nil
	if !p.merge {
		if stderr, diagnostics, err = newCapture(overflow); err != nil {
			return nil, nil, err
		}
		defer diagnostics.Close()
	}
	cmd.Stdout, cmd.Stderr = out, diagnostics
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("run %q: %w", p.args[0], bareExecError(err))
	}
	return stdout, stderr, nil
}

// detach starts the program in a session of its own and returns its pid. It
// outlives the job and the minion; its output is dropped.
func (p *program) detach() (pid int, err error) {
	cmd := p.command()
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("run %q: %w", p.args[0], bareExecError(err))
	}
	go func() { _ = cmd.Wait() }() // ends with the program; nobody asked how it went
	return cmd.Process.Pid, nil
}

// bareExecError drops the name of the program, which the message has already.
func bareExecError(err error) error {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// wait waits for the program, and ends it with its group when ctx ends first;
// then it returns the cause.
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
	endGroup(cmd.Process.Pid)
	<-done
	return context.Cause(ctx)
}

// endGroup ends every process of a group.
func endGroup(group int) {
	deadline := time.Now().Add(killGrace)
	signal := syscall.SIGTERM
	for syscall.Kill(-group, signal) == nil && time.Now().Before(deadline) {
		signal = 0                        // only ask whether one is left
		time.Sleep(10 * time.Millisecond) // a group has no event to wait for
	}
	_ = syscall.Kill(-group, syscall.SIGKILL) // fails if none is left
}

func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return -int(w.Signal())
	}
	return s.ExitCode()
}

// capture reads a pipe to its end and keeps what came before take.
type capture struct {
	mu       sync.Mutex
	text     strings.Builder
	taken    bool
	limit    int           // of bytes to keep
	overflow func()        // called once when there are more
	done     chan struct{} // closed at the end of the pipe; nil without one
}

// newCapture returns a capture and the pipe to write to, which the caller
// closes. Its reader ends when the last writer has closed the pipe.
func newCapture(overflow func()) (*capture, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c := &capture{limit: maxOutput, overflow: overflow, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer r.Close()
		_, _ = io.Copy(c, r) // Write does not fail, and a pipe ends with EOF
	}()
	return c, w, nil
}

// Write implements io.Writer. It never fails: a reader that stopped would block
// the program.
func (c *capture) Write(b []byte) (int, error) {
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
	return len(b), nil
}

// take returns what was written until the pipe's end or that of ctx.
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

// toolTimeout bounds the tools of the system that functions ask: one that takes
// longer hangs, on a dead file server or a lock.
const toolTimeout = 10 * time.Minute

// tool runs a program of the system in the C locale and returns how it ended.
// A missing program is ErrUnavailable.
func tool(ctx context.Context, args ...string) (ending, error) {
	if _, err := exec.LookPath(args[0]); err != nil {
		return ending{}, unavailable("program " + args[0])
	}
	p := program{args: args, env: baseEnviron(true), timeout: toolTimeout}
	e, err := p.run(ctx)
	if err == nil && e.timedOut {
		err = fmt.Errorf("%s: no answer within %v", args[0], toolTimeout)
	}
	return e, err
}

// output runs a program of the system that must succeed and returns what it
// wrote to stdout.
func output(ctx context.Context, args ...string) (string, error) {
	e, err := tool(ctx, args...)
	if err != nil {
		return "", err
	}
	if e.code != 0 {
		return "", e.failure(args[0])
	}
	return e.stdout, nil
}

// failure is the error of a program that ended with another code than 0.
func (e ending) failure(name string) error {
	text := strings.TrimSpace(e.stderr)
	if text == "" {
		text = strings.TrimSpace(e.stdout)
	}
	if text == "" {
		return fmt.Errorf("%s: exit code %d", name, e.code)
	}
	return fmt.Errorf("%s: exit code %d: %s", name, e.code, text)
}

// daemonEnviron are variables by which a service manager talks to the minion
// alone: a program that inherited them could speak in its name.
var daemonEnviron = []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "INVOCATION_ID", "JOURNAL_STREAM"}

// baseEnviron is the minion's environment for its programs, with messages and
// sorting of the C locale if that is asked for.
func baseEnviron(plainLocale bool) []string {
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
