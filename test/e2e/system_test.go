package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// Bounds, far above what a loaded machine needs: a script that reaches one has
// found a hang.
const (
	readyTime = 60 * time.Second  // from the start of a daemon to its READY=1
	runTime   = 120 * time.Second // of a command
	waitTime  = 60 * time.Second  // for something that must happen
	stopTime  = 30 * time.Second  // from SIGTERM to the end
	pollTime  = 15 * time.Millisecond

	slowPollTime = 20 * pollTime // from one look to the next, after the first ones
)

// systemKey finds the system of a script among its values.
type systemKey struct{}

// system is what one script has started.
type system struct {
	work    string
	tb      testing.TB
	port    int
	ids     []string
	started []*process
	mounts  []string

	programs map[string]string // of daemons of other versions
}

func newSystem(env *testscript.Env) *system {
	return &system{work: env.WorkDir, tb: env.T().(testing.TB)}
}

// process is a program that runs in the background.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdout string // its files
	stderr string
	ended  chan struct{} // closed when it has
	seen   bool          // the script has looked at its end

	notices *notices // of a daemon
}

// launch starts cmd in the background; what it prints goes to files.
func (s *system) launch(name string, cmd *exec.Cmd) (*process, error) {
	dir := filepath.Join(s.work, ".run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	base := filepath.Join(dir, fmt.Sprintf("%s.%d", name, len(s.started)))
	p := &process{name: name, cmd: cmd, stdout: base + ".out", stderr: base + ".err", ended: make(chan struct{})}
	out, err := os.Create(p.stdout)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	errs, err := os.Create(p.stderr)
	if err != nil {
		return nil, err
	}
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.started = append(s.started, p)
	go func() {
		_ = cmd.Wait() // its state is in cmd.ProcessState
		close(p.ended)
	}()
	return p, nil
}

// find returns the latest process of that name, nil if there was none.
func (s *system) find(name string) *process {
	for _, p := range slices.Backward(s.started) {
		if p.name == name {
			return p
		}
	}
	return nil
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// awaitEnd waits for the end; false says that it did not come in time.
func (p *process) awaitEnd(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.ended:
		return true
	case <-t.C:
		return false
	}
}

// code is the exit code of a process that has ended, as a shell would show it.
func code(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// tail is the end of a file, for the words of an error.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const most = 6000
	return string(b[max(0, len(b)-most):])
}

// credential is a Unix user, for exec.
func credential(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

// close ends everything that the script has started and fails the test for what
// did not end well, or has left something behind.
func (s *system) close() {
	for _, p := range slices.Backward(s.started) {
		s.end(p)
	}
	poll(func() bool { return len(s.leftovers()) == 0 }) // what was killed a moment ago needs one to be gone
	for _, pid := range s.leftovers() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		s.tb.Errorf("left behind: process %d: %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, dir := range s.mounts {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			s.tb.Errorf("unmount %s: %v", dir, err)
		}
	}
	if s.tb.Failed() {
		for _, p := range s.started {
			s.tb.Logf("--- %s (%s), exit code %d, its standard error ends:\n%s", p.name, strings.Join(p.cmd.Args, " "), code(p.cmd.ProcessState), tail(p.stderr))
		}
	}
}

// accident is what no program of ours may ever print.
var accident = regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: |goroutine \d+ \[)`)

// end stops one process and looks at how it ended.
func (s *system) end(p *process) {
	if p.running() {
		p.seen = true
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGTERM)
		if !p.awaitEnd(stopTime) {
			s.tb.Errorf("%s did not end within %s of SIGTERM", p.name, stopTime)
			p.signal(syscall.SIGQUIT) // for the stacks
			if !p.awaitEnd(stopTime) {
				p.signal(syscall.SIGKILL)
				<-p.ended
			}
		}
	}
	if c := code(p.cmd.ProcessState); c != 0 && !p.seen {
		s.tb.Errorf("%s ended by itself with exit code %d", p.name, c)
	}
	for _, path := range []string{p.stdout, p.stderr} {
		if b, err := os.ReadFile(path); err == nil && accident.Match(b) {
			s.tb.Errorf("%s has had an accident:\n%s", p.name, b)
		}
	}
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // it may have ended

// leftovers are the living processes that come from this script: they have its
// folder in their environment.
func (s *system) leftovers() []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var left []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !slices.Contains(strings.Split(string(b), "\x00"), "WORK="+s.work) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && pid != os.Getpid() {
			left = append(left, pid)
		}
	}
	return left
}
