package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/netlab"
)

const (
	readyTime = 60 * time.Second // from the start of a daemon until it is ready
	toolTime  = 90 * time.Second // a command that takes longer hangs
	look      = 20 * time.Millisecond
)

// machine is a daemon with its disk and its network.
type machine struct {
	t       *testing.T
	name    string
	program string
	etc     string // its configuration, socket and log: not on its disk
	effects string // a file that its jobs write, which no fault touches
	host    *netlab.Host
	disk    *disk
	member  string // what its cluster calls it
	address string // of the master, for other machines

	outboxLost int            // what its outbox has reported as lost
	repeated   map[string]int // how often jobs have run there that ran more than once

	sync.Mutex
	daemon  *exec.Cmd
	ended   chan struct{}
	expects bool // somebody ends it on purpose
	deaths  int  // how often it ended otherwise
	seen    int  // how many of them were reported
	read    int  // how much of what it wrote was read
	crashes []string
}

// crash is what no program may write.
var crash = regexp.MustCompile(`(?m)^(?:panic:|fatal error:|WARNING: DATA RACE).*(?:\n.*){0,30}`)

// news are how often the daemon has ended by itself since it was asked last, and the crashes of all programs on the machine.
func (m *machine) news() (deaths int, crashes []string) {
	b, _ := os.ReadFile(filepath.Join(m.etc, "stderr")) // there is none before the first start
	m.Lock()
	defer m.Unlock()
	deaths, crashes = m.deaths-m.seen, append(m.crashes, crash.FindAllString(string(b[m.read:]), -1)...)
	m.seen, m.read, m.crashes = m.deaths, len(b), nil
	return deaths, crashes
}

// settings are those of both daemons.
func (m *machine) settings() string {
	var b strings.Builder
	for name, path := range map[string]string{"pki_dir": m.disk.dir + "/pki", "cachedir": m.disk.dir + "/cache", "sock_dir": m.etc + "/run", "pidfile": m.pidFile(), "log_file": m.etc + "/log"} {
		fmt.Fprintf(&b, "%s: %s\n", name, path)
	}
	fmt.Fprintf(&b, "journal_sync: %s\n", *syncs)
	// At the end all that was ever stored is looked at: nothing may be removed for its size before.
	if m.program == "salt-master" {
		fmt.Fprintf(&b, "event_max_bytes: %d\n", journalSize)
	} else {
		fmt.Fprintf(&b, "outbox_max_bytes: %d\n", journalSize/4)
	}
	return b.String()
}

func (m *machine) pidFile() string { return filepath.Join(m.etc, "pid") }

func (m *machine) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	words := append([]string{filepath.Join(bin, program)}, args...)
	var c *exec.Cmd
	if m.host != nil {
		c = m.host.Command(words[0], words[1:]...)
	} else {
		c = exec.Command(words[0], words[1:]...)
	}
	c.Env = append(os.Environ(), "SALT_CONFIG_DIR="+m.etc, "CHAOS_EFFECTS="+m.effects)
	bound := exec.CommandContext(ctx, c.Path, c.Args[1:]...)
	bound.Env = c.Env
	return bound
}

// start starts the daemon and waits until it is ready.
func (m *machine) start() error { return startAll([]*machine{m}) }

// startAll starts daemons that may wait for each other.
func startAll(list []*machine) error {
	var errs []error
	for _, m := range list {
		errs = append(errs, m.launch())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, m := range list {
		errs = append(errs, m.ready())
	}
	return errors.Join(errs...)
}

// launch starts the daemon.
func (m *machine) launch() error {
	_ = os.Remove(m.pidFile())
	c := m.command(context.Background(), m.program)
	f, err := os.OpenFile(filepath.Join(m.etc, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	c.Stdout, c.Stderr = f, f
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	m.Lock()
	m.daemon, m.ended, m.expects = c, ended, false
	m.Unlock()
	go func() {
		_ = c.Wait()
		m.Lock()
		if !m.expects {
			m.deaths++
		}
		m.Unlock()
		close(ended)
	}()
	return nil
}

// ready waits until the daemon is ready.
func (m *machine) ready() error {
	for end := time.Now().Add(readyTime); time.Now().Before(end); time.Sleep(look) {
		if b, err := os.ReadFile(m.pidFile()); err == nil && len(b) > 0 {
			return nil
		}
		if !m.running() {
			return fmt.Errorf("%s ended at its start: %s\n%s", m.name, m.daemon.ProcessState, m.said())
		}
	}
	return fmt.Errorf("%s is not ready after %s\n%s", m.name, readyTime, m.said())
}

// said is the end of what the daemon wrote.
func (m *machine) said() string {
	var out strings.Builder
	for _, name := range []string{"stderr", "log"} {
		b, _ := os.ReadFile(filepath.Join(m.etc, name))
		fmt.Fprintf(&out, "--- %s of %s:\n%s\n", name, m.name, b[max(0, len(b)-4000):])
	}
	return out.String()
}

func (m *machine) running() bool {
	m.Lock()
	defer m.Unlock()
	if m.ended == nil {
		return false
	}
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// end ends the daemon by a signal and waits.
func (m *machine) end(s syscall.Signal) error {
	m.Lock()
	m.expects = true
	m.Unlock()
	m.signal(s)
	select {
	case <-m.ended:
		return nil
	case <-time.After(readyTime):
		return fmt.Errorf("%s did not end within %s of %s\n%s", m.name, readyTime, s, m.said())
	}
}

func (m *machine) signal(s syscall.Signal) {
	if m.running() {
		_ = m.daemon.Process.Signal(s)
	}
}

// heal starts the daemon again, as a service manager does, if it does not run.
func (m *machine) heal() error {
	if m.running() {
		return nil
	}
	return m.start()
}

// healAll does the same for several.
func healAll(list []*machine) error {
	return startAll(slices.DeleteFunc(slices.Clone(list), (*machine).running))
}

// result is what a command left.
type result struct {
	out, err string
	code     int
	hung     bool
}

// tool runs a command on the machine.
func (m *machine) tool(input, program string, args ...string) result {
	return m.toolOf(os.Getenv("HOME"), input, program, args...)
}

// toolOf runs a command of somebody with a home directory.
func (m *machine) toolOf(home, input, program string, args ...string) result {
	var out bytes.Buffer
	r := m.toolTo(&out, toolTime, home, input, program, args...)
	r.out = out.String()
	return r
}

// toolTo runs a command that is given so much time, and hands on what it prints.
func (m *machine) toolTo(out io.Writer, limit time.Duration, home, input, program string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := m.command(ctx, program, args...)
	c.Env = append(c.Env, "HOME="+home)
	var said bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(input), out, &said
	err := c.Run()
	r := result{err: said.String(), hung: ctx.Err() != nil}
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		r.code = failed.ExitCode()
	} else if err != nil {
		r.code, r.err = -1, err.Error()
	}
	m.Lock()
	defer m.Unlock()
	m.crashes = append(m.crashes, crash.FindAllString(said.String(), -1)...)
	return r
}

// crash is a power cut of the machine.
func (m *machine) crash() error {
	if err := m.end(syscall.SIGKILL); err != nil {
		return err
	}
	return errors.Join(m.disk.cut(), m.start())
}
