package fleet

import (
	"context"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// noKeys implements Keys: none is accepted.
type noKeys struct{}

func (noKeys) IDs() []salt.MinionID                { return nil }
func (noKeys) Token(salt.MinionID) (string, error) { return "", nil }

// TestForgottenMinions: what a minion has stored is forgotten in memory at once, and in the tables
// before its successor with the same id stores something, or until the master stops. What was left
// by a kill is deleted by the next start.
func TestForgottenMinions(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	start := func() *Fleet {
		f, err := Open(t.Context(), Options{Journal: j, Keys: noKeys{}, Log: b.Log})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := start()
	store := func(id salt.MinionID, text string) {
		t.Helper()
		entry := mine.Entry{Data: value.Value{V: text}}
		if err := f.StoreGrains(t.Context(), id, map[string]any{"is": text}); err != nil {
			t.Fatal(err)
		}
		if err := f.mine.change(t.Context(), id, mine.Change{Put: map[string]mine.Entry{text: entry}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []salt.MinionID{"web1", "web2", "web3"} {
		store(id, "old")
		f.Forget(id)
		if f.Grains(id) != nil || f.mine.of(id) != nil {
			t.Errorf("%s is not forgotten", id)
		}
	}
	store("web1", "new")
	if err := f.mine.void.deleteNow(t.Context(), "web2"); err != nil {
		t.Error(err)
	}
	if err := f.mine.reread(t.Context(), "web2"); err != nil || len(f.mine.of("web2")) > 0 {
		t.Errorf("what web2 had in the mine is read again: %v, %v", f.mine.of("web2"), err)
	}
	left := start() // as after a kill
	if left.Grains("web3")["is"] != "old" || len(left.mine.of("web3")) != 1 {
		t.Fatal("there is nothing to be deleted")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	f.Keep(ended, b.Log)
	check := func(what string, want ...salt.MinionID) {
		t.Helper()
		now := start()
		if g, m := now.grains.ids(), now.mine.ids(); !slices.Equal(g, want) || !slices.Equal(m, want) {
			t.Errorf("%s: grains are stored of %q, and a mine of %q, want %q", what, g, m, want)
		}
		if got := now.Grains("web1"); len(want) > 0 && got["is"] != "new" {
			t.Errorf("%s: the grains of web1 are %v", what, got)
		}
	}
	check("after a stop", "web1")
	left.ForgetDeleted()
	left.Keep(ended, b.Log)
	check("after a kill, a start and a stop")
}
