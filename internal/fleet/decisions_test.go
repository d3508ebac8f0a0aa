package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// desk implements Keys and Decisions of one master of several.
type desk struct {
	mu                sync.Mutex
	here              map[salt.MinionID]bool // whose key is accepted in its own key store
	accepted, refused map[salt.MinionID]bool // what all have decided
	known             bool
}

func newDesk() *desk {
	return &desk{here: map[salt.MinionID]bool{}, accepted: map[salt.MinionID]bool{}, refused: map[salt.MinionID]bool{}}
}

func (d *desk) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *desk) IDs() []salt.MinionID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.here))
}

func (d *desk) Token(id salt.MinionID) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.here[id] {
		return "token", nil
	}
	return "", nil
}

func (d *desk) Decided(id salt.MinionID) (accepted, refused, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accepted[id], d.refused[id], d.known
}

// startDesks opens a journal, and returns what opens the fleet of a master beside others.
func startDesks(t *testing.T) func(*desk) *Fleet {
	t.Helper()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return func(d *desk) *Fleet {
		t.Helper()
		f, err := Open(t.Context(), Options{Journal: j, Keys: d, Decisions: d, Log: b.Log})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// storeFacts stores grains and an entry of the mine.
func storeFacts(t *testing.T, f *Fleet, id salt.MinionID, text string) {
	t.Helper()
	if err := f.StoreGrains(t.Context(), id, map[string]any{"is": text}); err != nil {
		t.Fatal(err)
	}
	if err := f.mine.change(t.Context(), id, mine.Change{Put: map[string]mine.Entry{text: {Data: value.Value{V: text}}}}); err != nil {
		t.Fatal(err)
	}
}

// keep runs Keep until the returned function is called.
func keep(t *testing.T, f *Fleet) (end func()) {
	t.Helper()
	life, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.Keep(life, f.Log) })
	end = func() { cancel(); wg.Wait() }
	t.Cleanup(end)
	return end
}

// stored returns whose grains and whose entries of the mine are in the tables, sorted.
func stored(t *testing.T, f *Fleet) (grains, mine []string) {
	t.Helper()
	grains, err := f.grains.table.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if mine, err = f.mine.table.Keys(t.Context()); err != nil {
		t.Fatal(err)
	}
	return grains, mine
}

// TestAMasterThatJoinsForgetsNobody: a master begins with an empty key directory, or with one that others
// have decided past, beside what all have stored. It deletes nothing of the minions whose keys it does not
// have yet; what was left of those that were refused is deleted when all decisions are known.
func TestAMasterThatJoinsForgetsNobody(t *testing.T) {
	t.Parallel()
	open := startDesks(t)
	first, second := newDesk(), newDesk()
	a := open(first)
	all := []string{"accepted", "both", "refused", "unpublished"}
	for _, id := range all {
		storeFacts(t, a, salt.MinionID(id), "old")
	}
	b := open(second)
	b.ForgetDeleted()
	keep(t, b)() // a stop before the decisions are known
	check := func(f *Fleet, what string, want ...string) {
		t.Helper()
		if g, m := stored(t, f); !slices.Equal(g, want) || !slices.Equal(m, want) {
			t.Errorf("%s: grains are stored of %q, and a mine of %q, want %q", what, g, m, want)
		}
		for _, id := range want {
			if f.Grains(salt.MinionID(id))["is"] != "old" || len(f.mine.of(salt.MinionID(id))) != 1 {
				t.Errorf("%s: %s is not known", what, id)
			}
		}
	}
	check(b, "before the decisions are known", all...)
	second.set(func() {
		second.known = true
		second.accepted = map[salt.MinionID]bool{"accepted": true, "both": true}
		second.refused = map[salt.MinionID]bool{"both": true, "refused": true}
	})
	b = open(second)
	b.ForgetDeleted()
	keep(t, b)
	rest := []string{"accepted", "both", "unpublished"}
	bustest.Until(t, "the refused one is forgotten", func() bool {
		g, m := stored(t, b)
		return slices.Equal(g, rest) && slices.Equal(m, rest)
	})
	check(b, "when they are known", rest...)
}

// TestAReplacedKeyKeepsItsMine: a master learns that a key was deleted, and only then that another one of the
// same id is accepted. What the minion has stored with the other one is not deleted, and is known again.
func TestAReplacedKeyKeepsItsMine(t *testing.T) {
	t.Parallel()
	open := startDesks(t)
	d := newDesk()
	d.known, d.accepted["web1"], d.refused["web1"] = true, true, true
	storeFacts(t, open(newDesk()), "web1", "new")
	f := open(d)
	f.Forget("web1")
	keep(t, f)() // a stop before the key has come
	if g, m := stored(t, f); len(g) != 1 || len(m) != 1 {
		t.Fatalf("grains are stored of %q, and a mine of %q", g, m)
	}
	d.set(func() { d.here["web1"] = true })
	keep(t, f)
	bustest.Until(t, "the minion is known again", func() bool { return f.Grains("web1")["is"] == "new" && len(f.mine.of("web1")) == 1 })
	if g, m := stored(t, f); len(g) != 1 || len(m) != 1 {
		t.Errorf("grains are stored of %q, and a mine of %q", g, m)
	}
}
