package saltevent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/deadline"
)

// twoSinks are two sinks with the same rule, whose destination is a web service.
type twoSinks struct {
	t       testing.TB
	service *httptest.Server
	logs    map[string]*capture.Buffer

	mu     sync.Mutex
	times  map[string]int                                   // how often each event came, by its tag and sequence
	answer func(sink, tag string, seq uint64) (refuse bool) // of the first event of a batch; called without mu
	status int                                              // of a refusal
}

func newTwoSinks(t *testing.T) *twoSinks {
	s := &twoSinks{t: t, logs: map[string]*capture.Buffer{}, times: map[string]int{}, status: http.StatusServiceUnavailable}
	s.answer = func(string, string, uint64) bool { return false }
	s.service = httptest.NewServer(s)
	t.Cleanup(s.service.Close)
	return s
}

func (s *twoSinks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var list []event.Event
	if err != nil || json.Unmarshal(body, &list) != nil || len(list) == 0 {
		http.Error(w, "that is not a batch", http.StatusBadRequest)
		return
	}
	asked := list[:1]
	if s.status == http.StatusBadRequest { // it is about the events
		asked = list
	}
	if slices.ContainsFunc(asked, func(e event.Event) bool { return s.answer(r.Header.Get("Sink"), e.Tag, e.Seq) }) {
		http.Error(w, "try again", s.status)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range list {
		s.times[e.Tag+" "+strconv.FormatUint(e.Seq, 10)]++
	}
}

// start starts a sink, which names itself to the service.
func (s *twoSinks) start(at *system, name string) (stop func()) {
	s.t.Helper()
	path := filepath.Join(at.dir, name+".yaml")
	text := "rules:\n  hook: {tag: my/, since: all, batch: 10, wait: 10ms, to: {webhook: {url: '" + s.service.URL + "', headers: {Sink: " + name + "}}}}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.logs[name] = new(capture.Buffer)
	c := at.event("sink", "--config", path)
	c.Stderr = s.logs[name]
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { s.stop(at, name, c) })
	s.t.Cleanup(stop)
	return stop
}

func (s *twoSinks) stop(at *system, name string, c *exec.Cmd) {
	s.t.Helper()
	_ = c.Process.Signal(syscall.SIGTERM)
	if err := at.ended(c); err != nil {
		s.t.Errorf("%s: %v", name, err)
	}
	if s.t.Failed() {
		s.t.Logf("%s:\n%s", name, s.logs[name].String())
	}
}

// fireLines stores count events.
func (s *system) fireLines(count int) { s.fireTagged("my/x", count) }

func (s *system) fireTagged(tag string, count int) {
	s.t.Helper()
	c := s.event("fire", tag, "--stdin")
	in, err := c.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer in.Close()
		for n := range count {
			fmt.Fprintf(in, "{\"n\":%d}\n", n)
		}
	}()
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// refuseEachOnce lets the first attempt at a batch fail, by the event that it begins with.
func (s *twoSinks) refuseEachOnce() {
	refused := map[string]bool{}
	var mu sync.Mutex
	s.answer = func(_, tag string, seq uint64) bool {
		mu.Lock()
		defer mu.Unlock()
		first := tag + " " + strconv.FormatUint(seq, 10)
		again := refused[first]
		refused[first] = true
		return !again
	}
}

// came waits until so many different events have come.
func (s *twoSinks) came(count int) {
	s.t.Helper()
	bustest.Until(s.t, fmt.Sprintf("%d events have come", count), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.times) >= count
	})
}

// again returns the events that came more than once.
func (s *twoSinks) again() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	twice := maps.Clone(s.times)
	maps.DeleteFunc(twice, func(_ string, times int) bool { return times == 1 })
	return slices.Sorted(maps.Keys(twice))
}

// TestAFailureMovesARuleToAnotherSink: a sink whose destination fails gives its position away. It
// does not write what the next one has read from there.
func TestAFailureMovesARuleToAnotherSink(t *testing.T) {
	s := newTwoSinks(t)
	s.refuseEachOnce()
	master := newSystem(t, "")
	defer s.start(master, "one")()
	defer s.start(master, "two")()
	const rounds = 12
	for n := range rounds {
		master.fireLines(10)
		s.came((n + 1) * 10)
	}
	if twice := s.again(); len(twice) > 0 {
		t.Errorf("%d of %d events came more than once: %v", len(twice), rounds*10, twice)
	}
}

// TestASinkForgetsWhatAnotherDelivered: a sink that has lost its master in the middle of a burst, and
// gets its position back when another sink has delivered that burst, continues after it.
func TestASinkForgetsWhatAnotherDelivered(t *testing.T) {
	s := newTwoSinks(t)
	const burst = 200
	master := newSystem(t, "")
	master.fireLines(burst)
	busy, free := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	defer release()
	hold := sync.OnceFunc(func() { close(busy); <-free })
	s.answer = func(sink, _ string, _ uint64) bool {
		if sink == "one" {
			hold()
		}
		return false
	}
	stopOne := s.start(master, "one")
	deadline.Receive(t, busy, "the first batch")
	stopTwo := s.start(master, "two")
	master.kill(syscall.SIGKILL)
	master.start()
	s.came(burst)
	release()
	stopTwo()
	master.fireLines(10)
	s.came(burst + 10)
	stopOne()
	// The first batch was on its way when its sink lost the position.
	if twice := s.again(); len(twice) > 10 {
		t.Errorf("%d events came more than once, want those of the first batch at most: %v", len(twice), twice)
	}
}

// TestASinkGoesBackToWhatWasRefused has a service that refuses whole batches: events behind them
// arrive once, and the refused ones become dead letters.
func TestASinkGoesBackToWhatWasRefused(t *testing.T) {
	master := newSystem(t, "")
	master.fireTagged("my/bad", 30)
	master.fireLines(5)
	expectGoingBack(t, master, 30, 5)
}

// TestASinkGoesBackInEachJournal is the same with the events of three members.
func TestASinkGoesBackInEachJournal(t *testing.T) {
	list := startMembers(t)
	if out, err := list[0].event("listen", "--durable", "sink/hook", "--until-end").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fireEach(t, list, 1, 20)
	fireEach(t, list, 777, 778)
	expectGoingBack(t, list[0].system, 60, 6)
}

func expectGoingBack(t *testing.T, at *system, bad, good int) {
	t.Helper()
	s := newTwoSinks(t)
	s.status = http.StatusBadRequest
	s.answer = func(_, tag string, _ uint64) bool { return tag != "my/x" && !strings.Contains(tag, "/77") }
	defer s.start(at, "one")()
	s.came(good)
	bustest.Until(t, "all that was refused is a dead letter", func() bool {
		out, err := at.event("dead", "list").Output()
		return err == nil && bytes.Count(out, []byte("the destination refuses it")) == bad
	})
	if twice := s.again(); len(twice) > 0 {
		t.Errorf("these came more than once: %v", twice)
	}
}
