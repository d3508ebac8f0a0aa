package handler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"brine/internal/event"
)

// TestLanesKeepTheOrderOfEachSender hands over events of several senders: each
// sender's come one after the other and in order, and the slots bound how many
// are worked on at once.
func TestLanesKeepTheOrderOfEachSender(t *testing.T) {
	const senders, each, parallel = 7, 40, 3
	var mu sync.Mutex
	seen := map[string][]uint64{}
	var now, most atomic.Int64
	l := newLanes(parallel, func(_ context.Context, slots chan struct{}, i Item) {
		slots <- struct{}{}
		most.Store(max(most.Load(), now.Add(1)))
		mu.Lock()
		seen[i.Event.From] = append(seen[i.Event.From], i.Event.Seq)
		mu.Unlock()
		now.Add(-1)
		<-slots
	})
	for seq := range uint64(senders * each) {
		if !l.put(t.Context(), Item{Event: event.Event{From: fmt.Sprint(seq % senders), Seq: seq}}) {
			t.Fatal("not taken")
		}
	}
	l.wait()
	for from, places := range seen {
		if len(places) != each {
			t.Errorf("sender %s: %d events, want %d", from, len(places), each)
		}
		for i := range places[1:] {
			if places[i] >= places[i+1] {
				t.Errorf("sender %s: %d before %d", from, places[i], places[i+1])
			}
		}
	}
	if most.Load() > parallel {
		t.Errorf("%d at once, want %d at most", most.Load(), parallel)
	}
}

// TestLanesAreBounded fills the lanes while nothing is worked off.
func TestLanesAreBounded(t *testing.T) {
	gate := make(chan struct{})
	l := newLanes(1, func(context.Context, chan struct{}, Item) { <-gate })
	ctx, cancel := context.WithCancel(t.Context())
	for seq := range uint64(maxWaiting) {
		if !l.put(ctx, Item{Event: event.Event{Seq: seq + 1}}) {
			t.Fatal("not taken")
		}
	}
	taken := make(chan bool)
	go func() { taken <- l.put(ctx, Item{Event: event.Event{Seq: maxWaiting + 1}}) }()
	cancel() // what waits for room gives up
	if <-taken {
		t.Error("one more than the limit was taken")
	}
	close(gate)
	l.wait()
}

func TestLedger(t *testing.T) {
	type step struct {
		do   string
		seq  uint64
		want uint64 // what is done after it
	}
	for name, steps := range map[string][]step{
		"in order":     {{"begin", 1, 0}, {"finish", 1, 1}, {"begin", 2, 1}, {"finish", 2, 2}},
		"out of order": {{"begin", 1, 0}, {"begin", 3, 0}, {"begin", 4, 0}, {"finish", 4, 0}, {"finish", 1, 1}, {"finish", 3, 4}},
		"passed idle":  {{"pass", 9, 9}, {"begin", 10, 9}, {"finish", 10, 10}},
		"passed busy":  {{"begin", 1, 0}, {"pass", 5, 0}, {"begin", 7, 0}, {"pass", 7, 0}, {"finish", 7, 0}, {"finish", 1, 7}},
		"passed old":   {{"begin", 4, 0}, {"pass", 3, 0}, {"finish", 4, 4}, {"pass", 2, 4}},
	} {
		var l ledger
		for i, s := range steps {
			switch s.do {
			case "begin":
				l.begin(s.seq)
			case "pass":
				l.pass(s.seq)
			case "finish":
				l.finish(s.seq)
			}
			if l.done != s.want {
				t.Errorf("%s, step %d (%s %d): done up to %d, want %d", name, i, s.do, s.seq, l.done, s.want)
			}
		}
	}
}

// TestReturnsGoSideBySide: a return is its minion's, so that a slow one holds up those
// of the same minion only.
func TestReturnsGoSideBySide(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	l := newLanes(2, func(context.Context, chan struct{}, Item) {
		both.Done()
		both.Wait() // for the other one
	})
	for seq, id := range []string{"web1", "web2"} {
		l.put(t.Context(), Item{Event: event.Event{Tag: "salt/job/20261121113344286549/ret/" + id, Seq: uint64(seq) + 1}})
	}
	l.wait()
}

type refusal bool

func (r refusal) Error() string   { return "refused" }
func (r refusal) Permanent() bool { return bool(r) }

// TestPermanentErrorsAreNotRetried: what would fail again in the same way is a dead
// letter after the first attempt.
func TestPermanentErrorsAreNotRetried(t *testing.T) {
	for permanent, want := range map[refusal]int{true: 1, false: 4} {
		attempts := 0
		h := Handler{
			Parallel: 1, Retries: 3, Done: func(uint64) {},
			Do: func(context.Context, Item, int) (string, error) {
				return "", fmt.Errorf("start the job: %w", permanent)
			},
			Bury: func(_ context.Context, f Failure) error { attempts = f.Attempts; return nil },
		}
		r := h.Begin(t.Context())
		if err := r.Put(Item{Event: event.Event{Tag: "a", Seq: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := r.End(); err != nil || attempts != want {
			t.Errorf("permanent %t: %d attempts, %v; want %d", bool(permanent), attempts, err, want)
		}
	}
}
