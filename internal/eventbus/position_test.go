package eventbus

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// TestWhatNobodyWantsIsStoredSeldom: events that no handler wants cost no write of its position
// each, and are not read again after an orderly end. What was handled is stored at once, with all
// that was passed over before it.
func TestWhatNobodyWantsIsStoredSeldom(t *testing.T) {
	j, err := journal.Open(t.Context(), bustest.StartStore(t).Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	b := New(j, 1<<20, bustest.Log(t))
	fire := func() uint64 {
		t.Helper()
		seq, err := b.Store(t.Context(), "my/tag", nil, "")
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	position := func() *Position {
		t.Helper()
		p, err := b.Own().Keep(t.Context(), "handler")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := position()
	entry := func() (journal.TableEntry, *stored) {
		t.Helper()
		e, err := p.table.Entry(t.Context(), p.key)
		if err != nil {
			t.Fatal(err)
		}
		have, err := getPosition(t.Context(), p.table, p.key)
		if have == nil || err != nil {
			t.Fatal(have, err)
		}
		return e, have
	}
	before, _ := entry()
	passed := make(chan uint64, 1000)
	hand, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() {
		_ = b.Own().Hand(hand, p.Next(), func(event.Head) bool { return false }, func([]byte) error { return nil }, func(seq uint64) {
			p.Passed(seq)
			passed <- seq
		})
	}()
	var last uint64
	for begun := time.Now(); time.Since(begun) < 20*storePause; {
		for last = fire(); deadline.Receive(t, passed, "the event is passed over") < last; {
		}
	}
	after, _ := entry()
	if n := after.Revision - before.Revision; n > 1 { // one is due every passedEvery
		t.Errorf("%d writes for events that nobody wants", n)
	}
	p.Done(last)
	bustest.Until(t, "what was handled is stored", func() bool { _, have := entry(); return have.Seq == last })
	last = fire()
	for deadline.Receive(t, passed, "the last event is passed over") < last {
	}
	p.Close()
	if p = position(); p.Next() != last+1 {
		t.Errorf("after an orderly end it goes on at %d, want %d", p.Next(), last+1)
	}
	p.Close()
}

// joined makes the bus that of the only member of a cluster that runs.
func joined(t *testing.T, b *Bus) *Member {
	t.Helper()
	m, err := b.Join(t.Context(), MemberOptions{Name: "m1", Others: func() []string { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	run, stop := context.WithCancel(t.Context())
	go func() { defer close(ended); m.lease.Run(run) }()
	t.Cleanup(func() { stop(); deadline.Receive(t, ended, "the lease ends") })
	bustest.Until(t, "the member has a lease", m.lease.Has)
	return m
}

// lagging is a journal whose end is known only after some answers.
type lagging struct {
	readable
	first, last uint64 // of the first answers
	answers     int    // how many those are; negative is all
	then        uint64
}

func (b *lagging) Extent(context.Context) (event.Extent, error) {
	if b.answers == 0 {
		return event.Extent{First: b.first, Last: b.then}, nil
	}
	b.answers--
	return event.Extent{First: b.first, Last: b.last}, nil
}

// TestAPositionAheadOfTheJournalWaits: where the journal of a member seems to be shorter than what was
// handled, since the server that answers lacks the newest events, not all events are handled again.
func TestAPositionAheadOfTheJournalWaits(t *testing.T) {
	j, err := journal.Open(t.Context(), bustest.StartStore(t).Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	b := New(j, 1<<20, bustest.Log(t))
	m := joined(t, b)
	table, err := b.tables.get(t.Context(), "positions")
	if err != nil {
		t.Fatal(err)
	}
	of := &Handled{events: b, member: m, name: "m2", from: &lagging{first: 1, last: 1000, answers: 1, then: 1007}}
	if err := putPosition(t.Context(), table, positionKey(of.owner(), "handler"), stored{Seq: 1005}); err != nil {
		t.Fatal(err)
	}
	p, err := of.Keep(t.Context(), "handler")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Next() != 1006 {
		t.Errorf("it goes on at %d, want 1006", p.Next())
	}
}

// TestTheJournalOfAMemberIsShorter: a journal that stays shorter is, after a time, and a question that fails
// ends the wait.
func TestTheJournalOfAMemberIsShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		extent, err := extentWith(t.Context(), 1005, (&lagging{first: 7, last: 1000, answers: -1}).Extent)
		if took := time.Since(began); extent.First != 7 || extent.Last != 1000 || err != nil || took < catchUpTime || took > catchUpTime+2*catchUpPause {
			t.Errorf("it is %+v, %v, after %v", extent, err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), catchUpTime/2)
		defer cancel()
		if _, err := extentWith(ctx, 1005, (&lagging{last: 1000, answers: -1}).Extent); err == nil {
			t.Error("it goes on after the caller has gone")
		}
	})
}

// TestANewPositionBeyondTheEnd: at a member of a cluster, too, a new durable listener that asks for a sequence
// which does not exist yet gets all events, and is told.
func TestANewPositionBeyondTheEnd(t *testing.T) {
	w := start(t)
	joined(t, w.events)
	c := w.dial()
	last := w.mustFire(c, "a", "b")
	h := w.mustListen(c, protocol.Listen{Durable: "new", FromSeq: last + 100})
	if h.ready.Start > last-1 || h.ready.Ahead != last+99 {
		t.Errorf("it begins at %d, ahead %d; the newest event is %d", h.ready.Start, h.ready.Ahead, last)
	}
	if at := h.ready.Stored["m1"]; at != h.ready.Start-1 {
		t.Errorf("stored is %d, it begins at %d", at, h.ready.Start)
	}
}

// TestAPositionWithoutJournals: the position of a single master that has handled nothing yet names no
// journal; a member that takes it over can move it.
func TestAPositionWithoutJournals(t *testing.T) {
	w := start(t)
	m := joined(t, w.events)
	table, err := w.events.tables.get(t.Context(), "positions")
	if err != nil {
		t.Fatal(err)
	}
	who := w.events.Rules().User(0, "root", true)
	if err := putPosition(t.Context(), table, positionKey(who.Owner, "old"), stored{User: "root"}); err != nil {
		t.Fatal(err)
	}
	_, release, err := w.events.positions.hold(t.Context(), who, "old", "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := w.events.positions.back(t.Context(), who, "old", 7); err != nil {
		t.Fatal(err)
	}
	have, err := getPosition(t.Context(), table, positionKey(who.Owner, "old"))
	if have == nil || err != nil || have.At[m.opts.Name] != 7 {
		t.Errorf("stored is %+v, %v", have, err)
	}
}
