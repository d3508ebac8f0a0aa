package saltevent

import (
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
}

func newTwoSinks(t *testing.T) *twoSinks {
	s := &twoSinks{t: t, logs: map[string]*capture.Buffer{}, times: map[string]int{}}
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
	if s.answer(r.Header.Get("Sink"), list[0].Tag, list[0].Seq) {
		http.Error(w, "try again", http.StatusServiceUnavailable)
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
func (s *system) fireLines(count int) {
	s.t.Helper()
	c := s.event("fire", "my/x", "--stdin")
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
