package eventbus

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/test/bustest"
)

// TestDroppedLettersAndPositionsLeaveLittle: marks of dead letters that gave way, and of positions that were forgotten,
// do not accumulate.
func TestDroppedLettersAndPositionsLeaveLittle(t *testing.T) {
	t.Parallel()
	const most, more = 3, 40
	w := start(t)
	for seq := range uint64(maxOfSender + more) {
		if err := w.events.dead.Add(t.Context(), &protocol.DeadLetter{Name: "deploy", Seq: seq + 1, From: "eve"}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range more {
		name := fmt.Sprint("d", n)
		if err := w.events.Own().Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		positions, err := w.events.tables.get(t.Context(), "positions")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.events.positions.forget(t.Context(), positions, positionKey(daemonOwner, name), name); err != nil {
			t.Fatal(err)
		}
	}
	if dead, positions := bustest.StoredIn(t, w.bus.Conn(), "dead"), bustest.StoredIn(t, w.bus.Conn(), "positions"); dead != maxOfSender+more || positions != more {
		t.Fatalf("%d and %d messages are stored", dead, positions)
	}
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { KeepMarks(ctx, w.events, journal.Marks{Every: 100 * time.Millisecond, Most: most}) })
	t.Cleanup(func() { end(); wg.Wait() })
	bustest.Until(t, "the marks of dead letters are removed", func() bool { return bustest.StoredIn(t, w.bus.Conn(), "dead") == maxOfSender+most })
	bustest.Until(t, "the marks of positions are removed", func() bool { return bustest.StoredIn(t, w.bus.Conn(), "positions") == most })
	if list, err := w.events.dead.List(t.Context(), "deploy", 0); err != nil || len(list) != maxOfSender || list[0].Seq != more+1 {
		t.Errorf("%d dead letters are left, %v", len(list), err)
	}
}

// TestALetterThatWasDroppedLongAgo: a member that was away until the mark of a dropped dead letter is gone forgets the letter.
func TestALetterThatWasDroppedLongAgo(t *testing.T) {
	t.Parallel()
	w := start(t)
	for seq := range uint64(2) {
		if err := w.events.dead.Add(t.Context(), &protocol.DeadLetter{Name: "deploy", Seq: seq + 1, From: "eve"}); err != nil {
			t.Fatal(err)
		}
	}
	table, err := w.events.tables.get(t.Context(), "dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Remove(t.Context(), letterKey(daemonOwner, "deploy", "", 1)); err != nil { // without a mark
		t.Fatal(err)
	}
	r := w.events.dead.reader(func() {})
	r.Table = table
	if err := r.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := w.events.dead.keys(); len(keys) != 1 || keys[0] != letterKey(daemonOwner, "deploy", "", 2) {
		t.Errorf("known are %q", keys)
	}
}
