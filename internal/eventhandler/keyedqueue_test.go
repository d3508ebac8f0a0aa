package eventhandler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/test/deadline"
)

// TestKeyedQueuesKeepTheOrderOfEachSender hands over events of several senders: each
// sender's come one after the other and in order, and the slots bound how many
// are worked on at once.
func TestKeyedQueuesKeepTheOrderOfEachSender(t *testing.T) {
	const senders, each, parallel = 7, 40, 3
	var mu sync.Mutex
	seen := map[string][]uint64{}
	var now, most atomic.Int64
	l := newKeyedQueue(parallel, func(_ context.Context, slots chan struct{}, i Item) {
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
	for from, sequences := range seen {
		if len(sequences) != each {
			t.Errorf("sender %s: %d events, want %d", from, len(sequences), each)
		}
		for i := range sequences[1:] {
			if sequences[i] >= sequences[i+1] {
				t.Errorf("sender %s: %d before %d", from, sequences[i], sequences[i+1])
			}
		}
	}
	if most.Load() > parallel {
		t.Errorf("%d at once, want %d at most", most.Load(), parallel)
	}
}

// TestKeyedQueuesAreBounded fills the queues while nothing is worked off.
func TestKeyedQueuesAreBounded(t *testing.T) {
	hold := make(chan struct{})
	l := newKeyedQueue(1, func(context.Context, chan struct{}, Item) { <-hold })
	ctx, cancel := context.WithCancel(t.Context())
	for seq := range uint64(maxWaiting) {
		if !l.put(ctx, Item{Event: event.Event{Seq: seq + 1}}) {
			t.Fatal("not taken")
		}
	}
	taken := make(chan bool)
	go func() { taken <- l.put(ctx, Item{Event: event.Event{Seq: maxWaiting + 1}}) }()
	cancel() // what waits for room gives up
	if deadline.Receive(t, taken, "taken") {
		t.Error("one more than the limit was taken")
	}
	close(hold)
	l.wait()
}

func TestWatermark(t *testing.T) {
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
		var l watermark
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
	l := newKeyedQueue(2, func(context.Context, chan struct{}, Item) {
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
			Parallel: 1, Retries: 3, Done: func(string, uint64) {},
			Do: func(context.Context, Item, int) (string, error) {
				return "", fmt.Errorf("start the job: %w", permanent)
			},
			KeepDead: func(_ context.Context, f Failure) error { attempts = f.Attempts; return nil },
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

// One sender floods a handler that is stuck on its first event: the event of another is
// handled meanwhile, and then all of the flood, in its order, once.
func TestAFloodHoldsUpNobodyElse(t *testing.T) {
	const flood = 4 * maxWaiting
	var mu sync.Mutex
	var seen []uint64
	hold, other := make(chan struct{}), make(chan struct{})
	l := newKeyedQueue(2, func(_ context.Context, _ chan struct{}, i Item) {
		if i.Event.From == "web1" {
			close(other)
			return
		}
		<-hold
		mu.Lock()
		seen = append(seen, i.Event.Seq)
		mu.Unlock()
	})
	read := 0
	l.again = func(_ context.Context, seq uint64) (Item, bool, error) {
		read++
		return Item{Event: event.Event{From: "evil", Seq: seq}}, seq != flood/2, nil
	}
	lost := []uint64{}
	l.gone = func(_ string, seq uint64, err error) { lost = append(lost, seq) }
	for seq := range uint64(flood) {
		if !l.put(t.Context(), Item{Event: event.Event{From: "evil", Seq: seq + 1}, Line: make([]byte, 100)}) {
			t.Fatal("not taken")
		}
	}
	l.mu.Lock()
	if l.count != senderWaiting || l.left != flood-senderWaiting {
		t.Errorf("%d events of one sender are in memory, and %d sequences", l.count, l.left)
	}
	l.mu.Unlock()
	if !l.put(t.Context(), Item{Event: event.Event{From: "web1", Seq: flood + 1}}) {
		t.Fatal("not taken")
	}
	deadline.Receive(t, other, "other")
	close(hold)
	l.wait()
	if len(seen) != flood-1 || len(lost) != 1 || read < flood-2*senderWaiting {
		t.Errorf("%d events handled, %d not there, %d read again", len(seen), len(lost), read)
	}
	for i := range seen[1:] {
		if seen[i] >= seen[i+1] {
			t.Fatalf("%d before %d", seen[i], seen[i+1])
		}
	}
	if l.count != 0 || l.bytes != 0 || l.left != 0 || len(l.queues) != 0 {
		t.Errorf("left: %d events, %d bytes, %d sequences, %d queues", l.count, l.bytes, l.left, len(l.queues))
	}
}

// A sender of large events has its share in bytes.
func TestAShareInBytes(t *testing.T) {
	hold := make(chan struct{})
	l := newKeyedQueue(1, func(context.Context, chan struct{}, Item) { <-hold })
	l.again = func(_ context.Context, seq uint64) (Item, bool, error) { return Item{}, true, nil }
	for seq := range uint64(20) {
		if !l.put(t.Context(), Item{Event: event.Event{From: "evil", Seq: seq + 1}, Line: make([]byte, 1<<20)}) {
			t.Fatal("not taken")
		}
	}
	if l.bytes > senderBytes {
		t.Errorf("%d bytes of one sender are in memory, want %d at most", l.bytes, senderBytes)
	}
	close(hold)
	l.wait()
}
