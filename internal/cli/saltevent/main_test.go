package saltevent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/port"
	"github.com/brinebus/brine/test/programs"
)

// bin is the directory of the real binaries, once needBinaries has made them.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	defer func() { os.RemoveAll(bin) }()
	return m.Run()
}

// needBinaries makes the binaries, for the first test that needs them. The processes of a fuzz target,
// which are killed when their time is over, so have none to leave behind.
func needBinaries(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: it builds and runs the binaries")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
}

var build = sync.OnceValue(func() (err error) {
	if bin, err = os.MkdirTemp("", "salt-event-bin"); err != nil {
		return err
	}
	return programs.Put(bin, "salt-event", "salt-master", "salt-minion")
})

// system is a master of its own for one test.
type system struct {
	t      testing.TB
	ctx    context.Context // of its programs
	dir    string          // its configuration and all it writes
	master *exec.Cmd
	said   bytes.Buffer // what the masters have printed
}

// systemIn is one whose configuration is in dir. Programs that have not ended when the test has taken
// far too long are killed, and so the test ends.
func systemIn(t testing.TB, dir string) *system {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	deadline.Guard(t, cancel, "each program")
	return &system{t: t, ctx: ctx, dir: dir}
}

// newSystem configures a master and starts it; more is added to its
// configuration.
func newSystem(t testing.TB, more string) *system {
	t.Helper()
	needBinaries(t)
	dir, err := os.MkdirTemp("", "salt-event")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := systemIn(t, dir)
	text := "interface: 127.0.0.1\nret_port: " + strconv.Itoa(port.Free(t)) + "\nroot_dir: " + s.dir +
		"\npki_dir: pki\ncachedir: cache\nsock_dir: run\npidfile: pid\nlog_file: log\n" + more
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(s.dir, "master"), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(func() {
		if s.master != nil {
			s.kill(syscall.SIGTERM)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			t.Logf("the master's log ends:\n%s\nit has printed:\n%s", log[max(0, len(log)-4000):], s.said.String())
		}
	})
	return s
}

// start starts the master and waits until it answers.
func (s *system) start() {
	s.t.Helper()
	s.master = exec.CommandContext(s.ctx, filepath.Join(bin, "salt-master"), "-c", s.dir)
	s.master.Stderr = &s.said
	if err := s.master.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.answers("the master", func() *exec.Cmd { return s.event("token") })
}

// answers waits until a daemon answers a question.
func (s *system) answers(who string, question func() *exec.Cmd) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for question().Run() != nil {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s does not answer", who)
		}
		time.Sleep(10 * time.Millisecond) // between two questions
	}
}

// kill ends the master and waits for that.
func (s *system) kill(sig syscall.Signal) {
	_ = s.master.Process.Signal(sig)
	_ = s.ended(s.master)
	s.master = nil
}

// ended waits for the end of a program that was told to end, and ends it if it does not.
func (s *system) ended(c *exec.Cmd) error {
	s.t.Helper()
	late := time.AfterFunc(deadline.Time, func() { _ = c.Process.Kill() })
	err := c.Wait()
	if !late.Stop() {
		s.t.Errorf("%s has not ended in %s", filepath.Base(c.Path), deadline.Time)
	}
	return err
}

// event is a command line of salt-event for this system.
func (s *system) event(args ...string) *exec.Cmd {
	c := exec.CommandContext(s.ctx, filepath.Join(bin, "salt-event"), append([]string{"-c", s.dir}, args...)...)
	c.Env = append(os.Environ(), "TZ=UTC")
	return c
}
