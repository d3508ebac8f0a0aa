package reactor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// started is a job that a reactor has asked for.
type started struct {
	name string
	q    protocol.Publish
}

// world is a reactor over real events.
type world struct {
	*Reactor
	t       *testing.T
	events  *eventbus.Bus
	started chan started
	refuse  atomic.Bool                   // what is asked for next
	hold    atomic.Pointer[chan struct{}] // what is asked for next waits until it is closed
	stop    func()
}

func begin(t *testing.T) *world {
	t.Helper()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, events: eventbus.New(j, 1<<20, b.Log), started: make(chan started, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	w.Reactor = New(ctx, Options{Events: w.events, DeadLetters: w.events.DeadLetters(), Log: b.Log, Start: func(ctx context.Context, name string, q protocol.Publish) error {
		if w.refuse.Load() {
			return errors.New("no rule allows it")
		}
		w.started <- started{name, q}
		if hold := w.hold.Load(); hold != nil {
			select {
			case <-*hold:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}})
	w.stop = func() {
		cancel()
		deadline.Call(t, w.Wait, "the reactor")
	}
	t.Cleanup(w.stop)
	return w
}

// fire stores an event, and returns its sequence.
func (w *world) fire(tag string, data any) uint64 {
	w.t.Helper()
	seq, err := w.events.Store(w.t.Context(), tag, data, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return seq
}

// next is the next job that is asked for.
func (w *world) next() started {
	w.t.Helper()
	select {
	case s := <-w.started:
		return s
	case <-time.After(time.Minute):
		w.t.Fatal("no job is asked for")
		return started{}
	}
}

// rulesOf are those of a setting. job.yaml starts test.echo with what the event says at
// x, keep writes what it reads to the file got beside it.
func (w *world) rulesOf(setting string) []*Rule {
	w.t.Helper()
	rules, err := parse(w.t, setting, map[string]string{
		"reactor/job.yaml": "target: web1\nfunction: test.echo\nargs: [{event: .data.x}]\n",
		"reactor/keep":     "#!/bin/sh\ncat >\"$(dirname \"$0\")/new\"\nmv \"$(dirname \"$0\")/new\" \"$(dirname \"$0\")/got\"\n",
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return rules
}

func TestAnEventStartsItsJob(t *testing.T) {
	w := begin(t)
	w.fire("my/early", map[string]any{"x": "before the rule"})
	w.Set(w.rulesOf("  - 'my/*':\n    - run: reactor/job.yaml\n      name: echo\n"))
	w.fire("other/tag", map[string]any{"x": "of no rule"})
	seq := w.fire("my/tag", map[string]any{"x": "{{7*7}}"})
	s := w.next()
	if s.name != "echo" || s.q.Target != "web1" || len(s.q.Commands) != 1 || !slices.Equal(s.q.Commands[0].Args, []any{"{{7*7}}"}) {
		t.Errorf("asked for %+v", s)
	}
	meta, _ := s.q.Metadata.V.(map[string]any)
	if meta["reactor"] != "echo" || meta["event_seq"] != seq || meta["event_id"] == "" {
		t.Errorf("its metadata: %v", s.q.Metadata.V)
	}
}

func TestAnEventStartsItsProgram(t *testing.T) {
	w := begin(t)
	rules := w.rulesOf("  - my/tag:\n    - run: reactor/keep\n")
	w.Set(rules)
	w.fire("my/tag", map[string]any{"x": 1})
	got := filepath.Join(filepath.Dir(rules[0].Program[0]), "got")
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(got)
		if err == nil {
			var data map[string]any
			if err := json.Unmarshal(text, &data); err != nil || data["x"] != 1.0 {
				t.Errorf("the program reads %q", text)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestARefusedJobIsADeadLetter: and is tried again when somebody asks for that.
func TestARefusedJobIsADeadLetter(t *testing.T) {
	w := begin(t)
	w.refuse.Store(true)
	w.Set(w.rulesOf("  - 'my/*':\n    - run: reactor/job.yaml\n      name: echo\n      retries: 0\n"))
	seq := w.fire("my/tag", map[string]any{"x": "a"})
	letters := w.deadLetters(1)
	if l := letters[0]; l.Seq != seq || !slices.Equal(l.Command, []string{"salt-run", "reactor.retry", "echo", strconv.FormatUint(seq, 10)}) {
		t.Errorf("the dead letter: %+v", l)
	}
	if done, err := w.Retry(t.Context(), "echo", 0); err == nil || len(done) != 0 {
		t.Errorf("retried while it is refused: %d, %v", done, err)
	}
	w.refuse.Store(false)
	done, err := w.Retry(t.Context(), "echo", 0)
	if err != nil || !slices.Equal(done, []uint64{seq}) {
		t.Errorf("retried: %d, %v", done, err)
	}
	w.next()
	w.deadLetters(0)
	if _, err := w.Retry(t.Context(), "other", 0); err == nil {
		t.Error("dead letters of a handler that is not there are retried")
	}
}

// TestADeadLetterIsRetriedOnceAtATime: whoever asks while that is done is told so, and nothing is
// done twice. It stays if the one who asked for it goes away.
func TestADeadLetterIsRetriedOnceAtATime(t *testing.T) {
	w := begin(t)
	w.refuse.Store(true)
	w.Set(w.rulesOf("  - 'my/*':\n    - run: reactor/job.yaml\n      name: echo\n      retries: 0\n"))
	seq := w.fire("my/tag", map[string]any{"x": "a"})
	w.deadLetters(1)
	w.refuse.Store(false)
	hold := make(chan struct{})
	w.hold.Store(&hold)
	asking, leave := context.WithCancel(t.Context())
	asked := w.retry(asking)
	w.next()
	if r := deadline.Receive(t, w.retry(t.Context()), "an answer meanwhile"); rpc.CodeOf(r.err) != rpc.Busy || len(r.done) != 0 {
		t.Errorf("retried while that is done: %d, %v", r.done, r.err)
	}
	leave()
	if r := deadline.Receive(t, asked, "the end of the first retry"); r.err == nil || len(r.done) != 0 {
		t.Errorf("retried for one who has gone: %d, %v", r.done, r.err)
	}
	w.deadLetters(1)
	asked = w.retry(t.Context())
	w.next()
	close(hold)
	if r := deadline.Receive(t, asked, "the end of the second retry"); r.err != nil || !slices.Equal(r.done, []uint64{seq}) {
		t.Errorf("retried: %d, %v", r.done, r.err)
	}
	w.deadLetters(0)
	if done, err := w.Retry(t.Context(), "echo", 0); err != nil || len(done) != 0 || len(w.started) != 0 {
		t.Errorf("once more: %d, %v, and %d jobs are asked for", done, err, len(w.started))
	}
}

// retried is what somebody is told who retries.
type retried struct {
	done []uint64
	err  error
}

// retry retries all dead letters, meanwhile.
func (w *world) retry(ctx context.Context) <-chan retried {
	asked := make(chan retried, 1)
	go func() {
		done, err := w.Retry(ctx, "echo", 0)
		asked <- retried{done, err}
	}()
	return asked
}

// deadLetters waits until there are n.
func (w *world) deadLetters(n int) []protocol.DeadLetter {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		list, err := w.events.DeadLetters().List(w.t.Context(), "echo", 0)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(list) == n {
			return list
		}
		if time.Now().After(end) {
			w.t.Fatalf("%d dead letters, want %d", len(list), n)
		}
	}
}

// TestNewRules: what has not changed goes on, what has carries on from its position, and
// what is gone does nothing any more.
func TestNewRules(t *testing.T) {
	w := begin(t)
	one := "  - 'my/*':\n    - {run: reactor/job.yaml, name: same}\n    - {run: reactor/job.yaml, name: changed, from: [nobody]}\n    - {run: reactor/job.yaml, name: gone}\n"
	rules := w.rulesOf(one)
	w.Set(rules)
	same := w.running["same"]
	w.fire("my/tag", map[string]any{"x": 1})
	if names := []string{w.next().name, w.next().name}; !slices.Contains(names, "same") || !slices.Contains(names, "gone") {
		t.Errorf("asked for by %q", names)
	}
	gone := w.running["gone"]
	second := []*Rule{rules[0]}
	changed := *rules[1]
	changed.senders = rules[0].senders
	changed.From = nil
	w.Set(append(second, &changed))
	if w.running["same"] != same {
		t.Error("a rule that has not changed begins anew")
	}
	deadline.Receive(t, gone.done, "done")
	seq := w.fire("my/tag", map[string]any{"x": 2})
	for has := map[string]bool{}; !has["same"] || !has["changed"]; {
		s := w.next() // the first event, too, if the changed rule had not come to it before
		meta, _ := s.q.Metadata.V.(map[string]any)
		has[s.name] = meta["event_seq"] == seq
	}
	var names []string
	for _, r := range w.Reactions() {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"changed", "same"}) {
		t.Errorf("in force: %q", names)
	}
	w.stop()
	if len(w.started) != 0 {
		t.Errorf("asked for more: %v", deadline.Receive(t, w.started, "started"))
	}
}
