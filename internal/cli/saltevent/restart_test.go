package saltevent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/deadline"
)

var restarts = flag.Int("restarts", 0, "how many `restarts` TestListenersOutliveRestartsOfTheMaster makes; 0 for a few")

// TestListenersOutliveRestartsOfTheMaster restarts a master, in this process, while events are fired all
// the time: a plain listener, one with a position, a handler, a sink and a reaction outlive
// each restart and miss nothing of what was confirmed. Listeners and sink have each event
// once, in order; who runs programs may have one again.
func TestListenersOutliveRestartsOfTheMaster(t *testing.T) {
	r := newRestarted(t)
	r.start()
	r.tool("plain", "listen", "--tag", "load/")
	r.tool("durable", "listen", "--durable", "d", "--tag", "load/")
	r.tool("exec", "exec", "--durable", "e", "--tag", "load/mark", "--", "/bin/sh", "-c", "echo $SALT_EVENT_SEQ >>"+r.path("exec"))
	r.tool("sink", "sink", "--config", r.path("sink.yaml"))
	r.await("the listeners", func() bool { return r.running() == 4 })
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() { r.load(stop) })
	many := cmp.Or(*restarts, 4)
	begun := time.Now()
	for n := range many {
		r.mustFire("load/mark", strconv.Itoa(n))
		had := r.count()
		r.await("more events", func() bool { return r.count() > had })
		r.restart()
	}
	took := time.Since(begun)
	close(stop)
	deadline.Call(t, load.Wait, "load")
	r.mustFire("load/mark", "the end")
	r.check()
	t.Logf("%d restarts in %s, %d events confirmed, %d not, nothing missed", many, took.Round(time.Millisecond), len(r.confirmed), r.unconfirmed)
}

// restarted is a master that is restarted, with those who hear its events.
type restarted struct {
	t           *testing.T
	dir         string
	stop        func()
	heard       map[string]*capture.Buffer // by the names of tools
	confirmed   map[string]bool            // data of events
	unconfirmed int
	mu          sync.Mutex
}

func newRestarted(t *testing.T) *restarted {
	dir, err := os.MkdirTemp("", "restarts") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &restarted{t: t, dir: dir, heard: map[string]*capture.Buffer{}, confirmed: map[string]bool{}}
	r.write("master", "root_dir: "+dir+"\ninterface: 127.0.0.1\nreactor:\n  - 'load/mark':\n      - run: [/bin/sh, -c, 'echo $SALT_EVENT_SEQ >>"+r.path("reaction")+"']\n        name: r\n")
	r.write("sink.yaml", "rules:\n  all: {tag: load/, since: all, wait: 10ms, to: {file: {path: "+r.path("sunk")+"}}}\n")
	return r
}

func (r *restarted) path(name string) string { return filepath.Join(r.dir, name) }

func (r *restarted) write(name, text string) {
	if err := os.WriteFile(r.path(name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// start starts a master.
func (r *restarted) start() {
	r.t.Helper()
	cfg, _, err := config.LoadMaster(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	cfg.RetPort = 0 // any free one; a file cannot say that
	m, err := master.New(r.t.Context(), master.Options{Config: cfg, Version: "test", Log: slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := deadline.Receive(r.t, done, "the end of the master"); err != nil {
			r.t.Errorf("the master ends with %v", err)
		}
	})
	r.t.Cleanup(r.stop)
	deadline.Guard(r.t, cancel, "the master")
}

func (r *restarted) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

// run runs salt-event.
func (r *restarted) run(ctx context.Context, in string, out io.Writer, words ...string) int {
	env := &cli.Env{Name: "salt-event", Args: append([]string{"-c", r.dir}, words...), Stdin: strings.NewReader(in), Stdout: out, Stderr: io.Discard, Getenv: func(string) string { return "" }}
	return Run(ctx, env)
}

// tool runs salt-event until the end of the test, and not less.
func (r *restarted) tool(name string, words ...string) {
	out := new(capture.Buffer)
	r.heard[name] = out
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() {
		code := r.run(ctx, "", out, words...)
		if ctx.Err() == nil {
			r.t.Errorf("%s has ended with %d", name, code)
		}
		done <- code
	}()
	r.t.Cleanup(func() { cancel(); deadline.Receive(r.t, done, "the end of a listener") })
}

// running is how many listeners the master has.
func (r *restarted) running() int {
	var out bytes.Buffer
	r.run(r.t.Context(), "", &out, "stat", "--format", "json")
	var stat struct {
		Listeners []any `json:"listeners"`
	}
	_ = json.Unmarshal(out.Bytes(), &stat) // not yet
	return len(stat.Listeners)
}

func (r *restarted) mustFire(tag, data string) {
	r.t.Helper()
	for !r.fire(tag, data) {
		if r.t.Failed() || r.t.Context().Err() != nil {
			r.t.FailNow()
		}
	}
}

// fire fires an event for each word.
func (r *restarted) fire(tag string, data ...string) bool {
	lines := ""
	for _, d := range data {
		lines += strconv.Quote(d) + "\n"
	}
	code := r.run(r.t.Context(), lines, io.Discard, "fire", tag, "--stdin")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range data {
		if code == 0 {
			r.confirmed[strconv.Quote(d)] = true
		} else {
			r.unconfirmed++
		}
	}
	return code == 0
}

// count is how many events are confirmed.
func (r *restarted) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.confirmed)
}

// load fires until stop.
func (r *restarted) load(stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		var data []string
		for i := range 10 {
			data = append(data, fmt.Sprintf("%d.%d", n, i))
		}
		r.fire("load/more", data...)
	}
}

// check waits until all have the last event, and compares.
func (r *restarted) check() {
	r.t.Helper()
	sources := map[string]func() string{"plain": r.heard["plain"].String, "durable": r.heard["durable"].String, "sink": r.file("sunk")}
	var marks []string
	for name, text := range sources {
		r.await(name, func() bool { return strings.Contains(text(), `"the end"`) })
		events := r.events(name, text())
		for i, e := range events {
			if i > 0 && e.Seq <= events[i-1].Seq {
				r.t.Errorf("%s has event %d behind %d", name, e.Seq, events[i-1].Seq)
			}
		}
		missed := len(r.confirmed)
		marks = nil
		for _, e := range events {
			if r.confirmed[string(e.Data)] {
				missed--
			}
			if e.Tag == "load/mark" {
				marks = append(marks, fmt.Sprint(e.Seq))
			}
		}
		if missed > 0 {
			r.t.Errorf("%s has missed %d of %d confirmed events", name, missed, len(r.confirmed))
		}
	}
	for _, name := range []string{"exec", "reaction"} {
		text := r.file(name)
		r.await(name, func() bool { return slices.Contains(strings.Fields(text()), marks[len(marks)-1]) })
		r.await(name+", all of them", func() bool {
			done := strings.Fields(text())
			return !slices.ContainsFunc(marks, func(m string) bool { return !slices.Contains(done, m) })
		})
	}
}

func (r *restarted) file(name string) func() string {
	return func() string {
		b, _ := os.ReadFile(r.path(name)) // not there yet
		return string(b)
	}
}

func (r *restarted) events(name, text string) (list []event.Event) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var e event.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.t.Fatalf("%s: %q: %v", name, lines.Text(), err)
		}
		list = append(list, e)
	}
	return list
}

// await looks until ok, which is to stay so once it is.
func (r *restarted) await(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) || r.t.Failed() {
			r.t.Fatalf("not within two minutes: %s", what)
		}
	}
}
