package fleet

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// TestTheMineIsTheSameAtAllMembers: what one member stores or deletes is known at the others, also of a
// minion that is connected nowhere, and a member that knows less takes nothing back.
func TestTheMineIsTheSameAtAllMembers(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var fleets []*Fleet
	for _, m := range s.Members {
		f, _ := connectedMember(t, m)
		fleets = append(fleets, f)
	}
	a, b, c := fleets[0], fleets[1], fleets[2]
	idle := openFleet(t, s.Members[2]) // knows only what it has read at its start
	const id = salt.MinionID("web1")
	put := func(f *Fleet, name string) {
		t.Helper()
		if err := f.mine.change(t.Context(), id, mine.Change{Put: map[string]mine.Entry{name: {Data: value.Value{V: name}}}}); err != nil {
			t.Fatal(err)
		}
	}
	same := func(what string, want ...string) {
		t.Helper()
		bustest.Until(t, what, func() bool {
			for _, f := range fleets {
				entries := f.mine.of(id)
				for _, name := range want {
					if _, there := entries[name]; !there {
						return false
					}
				}
				if len(entries) != len(want) {
					return false
				}
			}
			return true
		})
	}
	put(a, "one")
	same("one entry is known everywhere", "one")
	put(a, "two")
	put(b, "three")
	same("so are those of two members", "one", "two", "three")
	if err := idle.DropMine(t.Context(), id, "one"); err != nil {
		t.Fatal(err)
	}
	same("one is deleted at a member that did not know it", "two", "three")
	if err := c.DropMine(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	same("all are deleted")
	put(b, "later")
	same("an entry comes afterwards", "later")
	a.Forget(id)
	put(b, "again") // before a deletes what it knew
	if err := a.mine.void.deleteNow(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if text, err := b.mine.table.Get(t.Context(), string(id)); err != nil || text == nil {
		t.Errorf("what was stored since is deleted: %v", err)
	}
	same("what was stored since is not deleted", "again", "later")
}

// TestTheMineIsReadOnceAtAStart: what was read is not read once more when other members are followed, and what they store
// after that is known. What was stored before a start and is changed here by a single master is known, too.
func TestTheMineIsReadOnceAtAStart(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	open := func(shared bool) *mines {
		t.Helper()
		m, err := openMine(t.Context(), j, shared)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	put := func(m *mines, id salt.MinionID, name string) {
		t.Helper()
		if err := m.change(t.Context(), id, mine.Change{Put: map[string]mine.Entry{name: {Data: value.Value{V: name}}}}); err != nil {
			t.Fatal(err)
		}
	}
	here := open(true)
	put(here, "web1", "old")

	again := open(true)
	if len(again.of("web1")) != 1 {
		t.Fatal("what was stored is not known after a start")
	}
	again.byID["web1"] = &mined{} // so that it shows when it is read once more
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { again.follow(ctx, slog.New(slog.DiscardHandler)) })
	put(here, "web2", "new")
	bustest.Until(t, "what another member stores is known", func() bool { return len(again.of("web2")) == 1 })
	cancel()
	wg.Wait()
	if len(again.of("web1")) != 0 {
		t.Error("the table was read twice")
	}

	single := open(false)
	put(single, "web1", "newer")
	if len(single.of("web1")) != 2 {
		t.Errorf("a single master knows %v after a change", single.of("web1"))
	}
}
