package saltevent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/capture"
)

// The flood that two listeners do not read: together it is far more than any process
// may grow by.
const (
	floodEvents = 60_000
	floodSize   = 8400      // bytes of one, so that all are 500 MB
	floodBound  = 350 << 20 // bytes that a daemon may have in memory; the flood itself costs half of that
	earBound    = 96 << 20  // and a listener
)

// TestSlowListenersGrowNothing floods the bus of a real daemon while one listener is
// stopped and another writes into a pipe that nobody reads. Neither the daemon nor they
// grow, and a third listener hears everything meanwhile; then the one is told how far it
// is behind, and both get all of it.
func TestSlowListenersGrowNothing(t *testing.T) {
	for _, bus := range []string{"master", "minion"} {
		t.Run(bus, func(t *testing.T) {
			t.Parallel()
			newFlooded(t, bus).run()
		})
	}
}

// flooded is a daemon with a flood on its bus.
type flooded struct {
	*system
	bus    string
	daemon *os.Process
}

func newFlooded(t *testing.T, bus string) *flooded {
	t.Helper()
	if bus == "master" {
		s := newSystem(t, "")
		return &flooded{s, bus, s.master.Process}
	}
	needBinaries(t)
	f := &flooded{system: systemIn(t, t.TempDir()), bus: bus}
	text := "id: web1\nmaster_type: disable\nroot_dir: " + f.dir + "\npki_dir: pki\ncachedir: cache\nsock_dir: run\npidfile: pid\nlog_file: log\noutbox_max_bytes: 1073741824\n"
	if err := os.WriteFile(filepath.Join(f.dir, "minion"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	minion := exec.CommandContext(f.ctx, filepath.Join(bin, "salt-minion"), "-c", f.dir)
	if err := minion.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = minion.Process.Signal(syscall.SIGTERM)
		_ = f.ended(minion)
	})
	f.daemon = minion.Process
	f.until("the minion answers", func() bool { return f.event("token", "--bus", bus).Run() == nil })
	return f
}

func (f *flooded) until(what string, done func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !done(); {
		if time.Now().After(deadline) {
			f.t.Fatalf("not within three minutes: %s", what)
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

// ear is a listener that counts what it prints of the flood, once it is let.
type ear struct {
	cmd   *exec.Cmd
	out   io.ReadCloser
	said  capture.Buffer
	ready string
}

func (f *flooded) listen(name string) *ear {
	f.t.Helper()
	e := &ear{ready: filepath.Join(f.t.TempDir(), name)}
	e.cmd = f.event("listen", "--bus", f.bus, "--tag", "flood", "--count", strconv.Itoa(floodEvents), "--ready-file", e.ready)
	e.cmd.Stderr = &e.said
	var err error
	if e.out, err = e.cmd.StdoutPipe(); err == nil {
		err = e.cmd.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = e.cmd.Process.Kill() })
	f.until(name+" listens", func() bool { _, err := os.Stat(e.ready); return err == nil })
	return e
}

// count reads to the end and checks that each number came once and in order.
func (e *ear) count() error {
	lines := bufio.NewReaderSize(e.out, 1<<20)
	for n := 0; ; n++ {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && n == floodEvents {
			return e.cmd.Wait() // which has closed its output
		}
		if err != nil {
			return fmt.Errorf("%w after %d events: %s", err, n, e.said.String())
		}
		if !strings.Contains(line, `"data":{"n":`+strconv.Itoa(n)+`,`) {
			return fmt.Errorf("event %d is %.120s", n, line)
		}
	}
}

func (f *flooded) run() {
	stopped, blocked, quick := f.listen("stopped"), f.listen("blocked"), f.listen("quick")
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		f.t.Fatal(err)
	}
	heard := make(chan error, 1)
	go func() { heard <- quick.count() }()
	f.flood()
	select {
	case err := <-heard:
		if err != nil {
			f.t.Errorf("the listener that reads: %v", err)
		}
	case <-time.After(3 * time.Minute):
		f.t.Fatal("the listener that reads is held up")
	}
	f.until("the one that is not read is told so", func() bool {
		return strings.Contains(blocked.said.String(), " events behind")
	})
	for who, p := range map[string]struct {
		of    *os.Process
		bound int64
	}{"the daemon": {f.daemon, floodBound}, "the listener that is not read": {blocked.cmd.Process, earBound}, "the listener that is stopped": {stopped.cmd.Process, earBound}} {
		if most := peak(f.t, p.of.Pid); most > p.bound {
			f.t.Errorf("%s had %d MiB in memory, of a flood of %d MiB; want %d MiB at most", who, most>>20, floodEvents*floodSize>>20, p.bound>>20)
		} else {
			f.t.Logf("%s had %d MiB in memory", who, most>>20)
		}
	}
	if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		f.t.Fatal(err)
	}
	for who, e := range map[string]*ear{"stopped": stopped, "not read": blocked} {
		if err := e.count(); err != nil {
			f.t.Errorf("the listener that was %s: %v", who, err)
		}
	}
}

// flood fires numbered events.
func (f *flooded) flood() {
	f.t.Helper()
	c := f.event("fire", "--bus", f.bus, "--stdin", "--timeout", "2m", "flood")
	in, err := c.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	var reported bytes.Buffer
	c.Stderr = &reported
	if err := c.Start(); err != nil {
		f.t.Fatal(err)
	}
	w := bufio.NewWriterSize(in, 1<<20)
	text := strings.Repeat("x", floodSize)
	for n := range floodEvents {
		fmt.Fprintf(w, `{"n":%d,"text":"%s"}`+"\n", n, text)
	}
	if err := errors.Join(w.Flush(), in.Close(), c.Wait()); err != nil {
		f.t.Fatalf("%v: %s", err, reported.String())
	}
}

// peak is the most that a process has had in memory, in bytes.
func peak(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
