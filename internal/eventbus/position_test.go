package eventbus

import (
	"context"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
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
