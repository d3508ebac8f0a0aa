package saltevent

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver of the file that is read here

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/test/dbtest"
)

// sinkCheck is a master, a sink, and all that the sink writes to.
type sinkCheck struct {
	*system
	config    string
	databases map[string]*sql.DB
	servers   []*dbtest.Server
	sink      *exec.Cmd
	log       bytes.Buffer
}

// newSinkCheck configures a sink with a rule for every destination that can hold a
// key, those databases that are installed among them.
func newSinkCheck(t *testing.T) *sinkCheck {
	c := &sinkCheck{system: newSystem(t, ""), databases: map[string]*sql.DB{}}
	c.config = filepath.Join(c.dir, "sink.yaml")
	text := "rules:\n" +
		"  file: {tag: num/, since: all, batch: 40, wait: 10ms, to: {file: {path: out/events.jsonl, rotate_size: 20KiB, compress: true}}}\n" +
		"  sqlite: {tag: num/, since: all, batch: 40, wait: 10ms, to: {sqlite: {path: out/events.db}}}\n"
	for name, serve := range dbtest.Servers {
		t.Run("start "+name, func(inner *testing.T) {
			s := serve(keep{inner, t})
			text += fmt.Sprintf("  %s: {tag: num/, since: all, batch: 40, wait: 10ms, to: {%s}}\n", name, s.Settings(""))
			c.databases[name], c.servers = s.DB(), append(c.servers, s)
		})
	}
	if err := os.WriteFile(c.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.dir, "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// keep is a test within another that may be skipped by itself, and whose things
// last as long as the outer one.
type keep struct {
	*testing.T
	outer *testing.T
}

func (k keep) Cleanup(f func()) { k.outer.Cleanup(f) }
func (k keep) TempDir() string  { return k.outer.TempDir() }

func (c *sinkCheck) start() {
	c.t.Helper()
	c.sink = c.event("sink", "--config", c.config)
	c.sink.Stderr = &c.log
	if err := c.sink.Start(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *sinkCheck) end(sig syscall.Signal) error {
	_ = c.sink.Process.Signal(sig)
	return c.ended(c.sink)
}

// fire fires count events, numbered on.
func (c *sinkCheck) fire(first, count int) {
	c.t.Helper()
	var in strings.Builder
	for n := first; n < first+count; n++ {
		fmt.Fprintf(&in, "{\"n\":%d}\n", n)
	}
	cmd := c.event("fire", "num/x", "--stdin")
	cmd.Stdin = strings.NewReader(in.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

// numbers counts the distinct and all events in a table.
func numbers(t testing.TB, db *sql.DB) (distinct, all int) {
	t.Helper()
	if err := db.QueryRow("SELECT count(DISTINCT seq), count(*) FROM salt_events").Scan(&distinct, &all); err != nil {
		return 0, 0 // there is no table yet
	}
	return distinct, all
}

// lines counts the same in the files, those that are full and compressed too.
func (c *sinkCheck) lines() (distinct, all int) {
	c.t.Helper()
	list, err := filepath.Glob(filepath.Join(c.dir, "out", "events.jsonl*"))
	if err != nil {
		c.t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for _, path := range list {
		out, err := exec.Command("gzip", "-cdf", path).Output()
		if err != nil {
			return 0, 0 // it was renamed meanwhile
		}
		for line := range bytes.Lines(out) {
			seen[event.SeqOf(line)] = true
			all++
		}
	}
	return len(seen), all
}

// disturb restarts the master in the middle, and takes the databases away for the
// third before.
func (c *sinkCheck) disturb(n, rounds int) {
	c.t.Helper()
	switch n {
	case rounds / 6:
		for _, s := range c.servers {
			s.Stop()
		}
	case rounds / 2:
		for _, s := range c.servers {
			s.Start()
		}
		c.kill(syscall.SIGKILL)
		c.system.start()
	}
}

// TestSinkKilledLosesAndDoublesNothing kills the sink at random moments while
// events are fired, and disturbs everything else.
func TestSinkKilledLosesAndDoublesNothing(t *testing.T) {
	c := newSinkCheck(t)
	if out, err := c.event("sink", "--config", c.config, "--check").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const rounds, batch = 12, 250
	for n := range rounds {
		c.start()
		c.fire(n*batch, batch)
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // any moment will do
		if err := c.end(syscall.SIGKILL); err == nil {
			t.Fatalf("the sink ended by itself:\n%s", c.log.String())
		}
		c.disturb(n, rounds)
	}
	c.start()
	sqlite, err := sql.Open("sqlite", "file:"+filepath.Join(c.dir, "out", "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer sqlite.Close()
	c.databases["sqlite"] = sqlite
	c.expect("file", c.lines, rounds*batch)
	for name, db := range c.databases {
		c.expect(name, func() (int, int) { return numbers(t, db) }, rounds*batch)
	}
	if err := c.end(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, c.log.String())
	}
}

// expect waits until all events are there, each once.
func (c *sinkCheck) expect(name string, count func() (distinct, all int), want int) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		distinct, all := count()
		if distinct == want && all == want {
			return
		}
		if all > want || time.Now().After(deadline) {
			c.t.Errorf("%s: %d events in %d sequences, want %d of each\n%s", name, distinct, all, want, c.log.String())
			return
		}
	}
}

// TestSinkWaitsForItsMaster starts it before there is one.
func TestSinkWaitsForItsMaster(t *testing.T) {
	c := newSinkCheck(t)
	c.kill(syscall.SIGTERM)
	c.start()
	c.system.start()
	c.fire(0, 10)
	c.expect("file", c.lines, 10)
	if err := c.end(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, c.log.String())
	}
}

func TestSinkMistakes(t *testing.T) {
	s := systemIn(t, t.TempDir())
	needBinaries(t)
	path := filepath.Join(s.dir, "sink.yaml")
	if err := os.WriteFile(path, []byte("rules:\n  a:\n    to: {file: {path: missing/x}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(s.dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("rules:\n  a:\n    batch: 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no file named", []string{"sink"}, 64, "--config"},
		{"a missing file", []string{"sink", "--config", s.dir + "/none"}, 64, "none"},
		{"a mistake", []string{"sink", "--config", bad}, 64, bad + ":3: rules.a.batch"},
		{"a mistake, checked", []string{"sink", "--check", "--config", bad}, 64, bad + ":3: rules.a.batch"},
		{"a destination that is not there", []string{"sink", "--check", "--config", path}, 1, "no such file"},
		{"a word too much", []string{"sink", "--config", path, "more"}, 64, "more"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := s.event(test.args...)
			out, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != test.code || !strings.Contains(string(out), test.want) {
				t.Errorf("exit code %d, want %d, with %q:\n%s", cmd.ProcessState.ExitCode(), test.code, test.want, out)
			}
		})
	}
}
