package saltevent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

// The size of the check: events that were fired with exit code 0, in batches of one
// command each.
const (
	checkedEvents = 3000
	checkedBatch  = 25
)

// TestNothingIsLostOverKills fires numbered events, on the master and on a minion
// that forwards them, while the listener, the master and the minion are killed at
// random. What was fired with exit code 0 must have been written by a durable
// listener, each event under one sequence only, in order, and again only by a later
// listener than the one that wrote it first.
func TestNothingIsLostOverKills(t *testing.T) {
	s := newSystem(t, "auto_accept: True\n")
	c := &checker{system: s, confirmed: map[int]bool{}, dir: filepath.Join(s.dir, "web1")}
	c.configureMinion()
	c.startMinion()
	t.Cleanup(func() {
		_ = c.minion.Process.Signal(syscall.SIGTERM)
		_ = c.ended(c.minion)
	})
	// From here on the position exists, and nothing may pass it.
	if out, err := s.event("listen", "--durable", "checker", "--until-end").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.listen()
	stop := make(chan struct{})
	var killing sync.WaitGroup
	killing.Go(func() { c.killAround(stop) })
	next := 0
	for len(c.confirmed) < checkedEvents {
		c.fire(next)
		next += checkedBatch
	}
	close(stop)
	deadline.Call(t, killing.Wait, "killing")
	c.finish()
	c.check(next)
}

type checker struct {
	*system
	mu        sync.Mutex // guards the processes
	listener  *exec.Cmd
	minion    *exec.Cmd
	dir       string   // of the minion
	outputs   []string // a file for each listener
	kills     int
	confirmed map[int]bool
}

// listen starts a listener with a file of its own.
func (c *checker) listen() {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), fmt.Sprintf("out.%d", len(c.outputs)))
	out, err := os.Create(path)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer out.Close()
	c.listener = c.event("listen", "--durable", "checker", "--tag", "num/")
	c.listener.Stdout = out
	if err := c.listener.Start(); err != nil {
		c.t.Error(err)
	}
	c.outputs = append(c.outputs, path)
}

func (c *checker) configureMinion() {
	c.t.Helper()
	master, err := os.ReadFile(filepath.Join(c.system.dir, "master"))
	if err != nil {
		c.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(master), "ret_port: ")
	port, _, _ := strings.Cut(rest, "\n")
	text := "id: web1\nmaster: 127.0.0.1\nmaster_port: " + port + "\nrecon_max: 200\nroot_dir: " + c.dir +
		"\npki_dir: pki\ncachedir: cache\nsock_dir: run\npidfile: pid\nlog_file: log\n"
	if err := errors.Join(os.MkdirAll(c.dir, 0o755), os.WriteFile(filepath.Join(c.dir, "minion"), []byte(text), 0o644)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *checker) startMinion() {
	c.minion = exec.CommandContext(c.ctx, filepath.Join(bin, "salt-minion"), "-c", c.dir)
	if err := c.minion.Start(); err != nil {
		c.t.Error(err)
	}
}

// command is a command that fires one batch: every other one on the minion, whose events
// the minion forwards.
func (c *checker) command(first int) *exec.Cmd {
	var in strings.Builder
	onMinion := first/checkedBatch%2 == 1
	for n := first; n < first+checkedBatch; n++ {
		if onMinion {
			fmt.Fprintf(&in, "{\"events\":[{\"tag\":\"num/%d\",\"data\":{\"n\":%d}}]}\n", first, n)
		} else {
			fmt.Fprintf(&in, "{\"n\":%d}\n", n)
		}
	}
	cmd := c.event("fire", fmt.Sprintf("num/%d", first), "--stdin")
	if onMinion {
		cmd = exec.CommandContext(c.ctx, filepath.Join(bin, "salt-event"), "-c", c.dir, "fire", "--bus", "minion", "fire_master", "--stdin")
	}
	cmd.Stdin = strings.NewReader(in.String())
	return cmd
}

// fire fires one batch; what exits with 0 must not be lost.
func (c *checker) fire(first int) {
	cmd := c.command(first)
	if cmd.Run() != nil {
		return // stored or not
	}
	for n := first; n < first+checkedBatch; n++ {
		c.confirmed[n] = true
	}
}

// killAround kills the listener, the master or the minion, and starts it again, until
// stop.
func (c *checker) killAround(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(20+rand.IntN(300)) * time.Millisecond):
		}
		c.mu.Lock()
		c.kills++
		switch rand.IntN(4) {
		case 0:
			c.kill(syscall.SIGKILL)
			c.start()
		case 1:
			_ = c.minion.Process.Kill()
			_ = c.ended(c.minion)
			c.startMinion()
		default:
			_ = c.listener.Process.Kill()
			_ = c.ended(c.listener)
			c.listen()
		}
		c.mu.Unlock()
	}
}

// finish waits until the listener has written the last event and ends it.
func (c *checker) finish() {
	c.t.Helper()
	// The last kill may have been that of the minion, a moment ago.
	c.answers("the minion", func() *exec.Cmd {
		return exec.CommandContext(c.ctx, filepath.Join(bin, "salt-event"), "-c", c.dir, "token", "--bus", "minion")
	})
	last := exec.CommandContext(c.ctx, filepath.Join(bin, "salt-event"), "-c", c.dir, "fire", "--bus", "minion", "fire_master", "-t", "1m", `{"events":[{"tag":"num/last","data":{"n":-2}}]}`)
	for _, cmd := range []*exec.Cmd{c.event("fire", "num/end", "-t", "1m", `{"n":-1}`), last} {
		if out, err := cmd.CombinedOutput(); err != nil {
			c.t.Fatalf("%v: %s", err, out)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for {
		b, err := os.ReadFile(c.outputs[len(c.outputs)-1])
		if err != nil {
			c.t.Fatal(err)
		}
		if bytes.Contains(b, []byte(`"num/end"`)) && bytes.Contains(b, []byte(`"num/last"`)) {
			break
		}
		if time.Now().After(deadline) {
			c.t.Fatal("the last event has not come")
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
	_ = c.listener.Process.Signal(syscall.SIGTERM)
	_ = c.ended(c.listener)
}

func (c *checker) check(fired int) {
	sequences := map[int]uint64{}
	again := 0
	for _, path := range c.outputs {
		b, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		if end := bytes.LastIndexByte(b, '\n'); end < len(b)-1 {
			b = b[:end+1] // the kill came within a line
		}
		last := uint64(0)
		for line := range bytes.Lines(b) {
			var e struct {
				Seq  uint64
				Data struct{ N int }
			}
			if err := json.Unmarshal(line, &e); err != nil {
				c.t.Fatalf("%s: %v: %q", path, err, line)
			}
			if e.Seq <= last {
				c.t.Errorf("%s: event %d after %d", path, e.Seq, last)
			}
			last = e.Seq
			if have := sequences[e.Data.N]; have != 0 && have != e.Seq {
				c.t.Errorf("number %d is stored twice: at %d and %d", e.Data.N, have, e.Seq)
			} else if have != 0 {
				again++
			}
			sequences[e.Data.N] = e.Seq
		}
	}
	var lost []int
	for n := range c.confirmed {
		if sequences[n] == 0 {
			lost = append(lost, n)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		c.t.Errorf("%d of %d events were lost: %d", len(lost), len(c.confirmed), lost)
	}
	c.t.Logf("%d of %d events confirmed, %d kills, %d written again", len(c.confirmed), fired, c.kills, again)
}
