package outbox

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestWatermarksAreAMembersOwn: what another member has stored says nothing about the journal of
// this one. With one position for both, a member that was killed would store again what it has.
func TestWatermarksAreAMembersOwn(t *testing.T) {
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), 2*time.Minute)
	defer cancel()
	open := func(m *bustest.Member) *watermarks {
		t.Helper()
		j, err := journal.Open(ctx, m.Conn(), journal.Options{Store: m.Store(), Copies: 3, Name: m.Name, Server: m.Name, Names: filepath.Join(m.Dir, "names")})
		if err != nil {
			t.Fatal(m.Name, err)
		}
		t.Cleanup(j.Close)
		w, err := openWatermarks(ctx, j, func() error { return nil })
		if err != nil {
			t.Fatal(m.Name, err)
		}
		return w
	}
	put := func(w *watermarks, n uint64) {
		t.Helper()
		pending, err := w.journal.BeginEach([]journal.Batch{drafts([]event.Event{{Tag: "a/b", Data: []byte(`{}`), From: "web1"}}, messageName("web1", "e", n), 0, 0)})
		if err == nil {
			_, err = pending.Wait(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first, second := open(s.Members[0]), open(s.Members[1])
	for n := range uint64(5) {
		put(second, n+1)
	}
	if err := second.checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	put(first, 7) // no checkpoint: as before a kill
	again, err := openWatermarks(ctx, first.journal, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if !again.sender("web1").has("e", 7, 0) {
		t.Error("a message that this member has stored is not recognised after a kill")
	}
}
