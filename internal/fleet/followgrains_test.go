package fleet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// knownAs reports whether each of the fleets knows this role of a minion by its grains, nil for none.
func knownAs(id salt.MinionID, role any, fleets ...*Fleet) func() bool {
	return func() bool {
		for _, f := range fleets {
			if f.Grains(id)["role"] != role {
				return false
			}
		}
		return true
	}
}

// TestGrainsAreTheSameAtAllMembers: grains that one member stores or forgets are known, or forgotten, at the
// others, whether their minion is connected or not. What a minion tells after that is stored, even if it is the same
// as before.
func TestGrainsAreTheSameAtAllMembers(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var fleets []*Fleet
	for _, m := range s.Members {
		f, _ := connectedMember(t, m)
		fleets = append(fleets, f)
	}
	a, b := fleets[0], fleets[1]
	away := openFleet(t, s.Members[0]) // hears nothing at first
	const id = salt.MinionID("web1")
	tell := func(role string) {
		t.Helper()
		if err := b.StoreGrains(t.Context(), id, map[string]any{"role": role}); err != nil {
			t.Fatal(err)
		}
		b.tellMembers(id, held{})
	}
	b.Join(id, inboxRoot+"1", true)
	b.tellMembers(id, held{key: "key", process: "1"})
	tell("front")
	bustest.Until(t, "all know its grains", knownAs(id, "front", fleets...))
	bustest.Until(t, "they are stored", func() bool { return inTable(t, b, id) == `{"role":"front"}` })
	for range 2 {
		if err := a.DropGrains(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		bustest.Until(t, "all have forgotten them", knownAs(id, nil, fleets...))
		tell("front")
		bustest.Until(t, "all know them again", knownAs(id, "front", fleets...))
		bustest.Until(t, "they are stored again", func() bool { return inTable(t, a, id) == `{"role":"front"}` })
	}
	b.Leave(id, inboxRoot+"1", time.Now())
	b.tellMembers(id, held{})
	if err := b.StoreGrains(t.Context(), id, map[string]any{"role": "back"}); err != nil { // nobody is told
		t.Fatal(err)
	}
	bustest.Until(t, "all know the grains of a minion that is away", knownAs(id, "back", fleets...))
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { away.grains.follow(ctx, s.Members[0].Log) })
	t.Cleanup(func() { end(); wg.Wait() })
	bustest.Until(t, "so does a member that heard nothing meanwhile", knownAs(id, "back", away))
	restarted := openFleet(t, s.Members[2])
	if role := restarted.Grains(id)["role"]; role != "back" {
		t.Errorf("after a restart its role is %v", role)
	}
}

// heardGrains is the entry of a minion with this role, or that of a deleted one for "".
func heardGrains(t *testing.T, id salt.MinionID, role string, revision uint64) journal.TableEntry {
	t.Helper()
	e := journal.TableEntry{Key: string(id), Revision: revision}
	if role == "" {
		return e
	}
	var err error
	if e.Value, err = value.Encode(map[string]any{"role": role}); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestGrainsThatAreHeardDuringAWrite: what a minion has told here counts until it is stored. Then that counts which
// was stored last, and an older entry that is heard later does not.
func TestGrainsThatAreHeardDuringAWrite(t *testing.T) {
	const id = salt.MinionID("web1")
	noWait, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		heard journal.TableEntry
		own   uint64 // the revision of the own write
		want  any
	}{
		"others have stored something before": {heardGrains(t, id, "old", 3), 4, "own"},
		"others have stored something since":  {heardGrains(t, id, "new", 5), 4, "new"},
		"others have deleted them before":     {heardGrains(t, id, "", 3), 4, "own"},
		"others have deleted them since":      {heardGrains(t, id, "", 5), 4, nil},
	} {
		f, _ := lonelyMember(nil)
		changes := 0
		f.grains.changed = func(salt.MinionID) { changes++ }
		if err := f.StoreGrains(noWait, id, map[string]any{"role": "own"}); err != nil {
			t.Fatal(err)
		}
		w := f.grains.later.take()[id]
		f.grains.hear(c.heard)
		if role := f.Grains(id)["role"]; role != "own" || changes > 0 {
			t.Errorf("%s: before it is stored the role is %v", name, role)
		}
		f.grains.wrote(id, w, c.own)
		if c.want != nil {
			f.grains.hear(heardGrains(t, id, "old", 2))
		}
		if role := f.Grains(id)["role"]; role != c.want || (changes == 1) != (c.want != "own") {
			t.Errorf("%s: the role is %v after %d changes, want %v", name, role, changes, c.want)
		}
		if len(f.grains.deferred) > 0 {
			t.Errorf("%s: something is kept", name)
		}
	}
}

// TestGrainsThatNobodyHasStored: those that another member has told are stored when their minion tells them here,
// since that member may be lost.
func TestGrainsThatNobodyHasStored(t *testing.T) {
	const id = salt.MinionID("web1")
	noWait, cancel := context.WithCancel(t.Context())
	cancel()
	for _, stored := range []bool{false, true} {
		f, _ := lonelyMember(nil)
		e := heardGrains(t, id, "front", 7)
		if err := f.learn(id, ofGrains, e.Value, 0); err != nil {
			t.Fatal(err)
		}
		if stored {
			f.grains.hear(e)
		}
		if err := f.StoreGrains(noWait, id, map[string]any{"role": "front"}); err != nil {
			t.Fatal(err)
		}
		if n := len(f.grains.later.take()); (n == 1) == stored {
			t.Errorf("stored: %t; to be written: %d", stored, n)
		}
	}
}

// TestAnOlderWriteComesLate: a member that a minion was connected to stores what it told there before. The member that
// the minion is connected to writes what it has told here, once; not if the minion is connected to both.
func TestAnOlderWriteComesLate(t *testing.T) {
	const id = salt.MinionID("web1")
	noWait, cancel := context.WithCancel(t.Context())
	cancel()
	for _, both := range []bool{false, true} {
		f, _ := lonelyMember(nil)
		f.grains.changed = func(salt.MinionID) {}
		f.Join(id, inboxRoot+"1", true)
		if both {
			f.Join(id, placeAt("b"), false)
		}
		if err := f.StoreGrains(noWait, id, map[string]any{"role": "own"}); err != nil {
			t.Fatal(err)
		}
		f.grains.wrote(id, f.grains.later.take()[id], 4)
		f.grains.hear(heardGrains(t, id, "late", 5))
		w := f.grains.later.take()[id]
		if role := f.Grains(id)["role"]; (role == "own") == both || (w != nil) == both {
			t.Fatalf("connected to both: %t; its role is %v, and to be written again: %t", both, role, w != nil)
		}
		if both {
			continue
		}
		if string(w.text) != `{"role":"own"}` {
			t.Errorf("%s is to be written", w.text)
		}
		f.grains.wrote(id, w, 6)
		f.grains.hear(heardGrains(t, id, "later", 7))
		if role := f.Grains(id)["role"]; role != "later" || len(f.grains.later.take()) > 0 {
			t.Errorf("after the second time its role is %v", role)
		}
	}
}

// TestAWriteOfAMinionThatHasMoved: what could not be stored while a minion was connected here is not stored when it is
// connected to another member, which it has told newer grains.
func TestAWriteOfAMinionThatHasMoved(t *testing.T) {
	const id = salt.MinionID("web1")
	noWait, cancel := context.WithCancel(t.Context())
	cancel()
	f, _ := lonelyMember(nil)
	f.Join(id, inboxRoot+"1", true)
	if err := f.StoreGrains(noWait, id, map[string]any{"role": "own"}); err != nil {
		t.Fatal(err)
	}
	w := f.grains.later.take()[id]
	w.failed = true
	if f.grains.moved(id, w) {
		t.Error("it is still here")
	}
	f.Join(id, placeAt("b"), false)
	f.Presence.Leave(id, inboxRoot+"1", time.Now())
	if w.failed = false; f.grains.moved(id, w) {
		t.Error("the first write is not tried")
	}
	w.failed = true
	if !f.grains.writeLater(t.Context(), f.Log) || len(f.grains.later.take()) > 0 {
		t.Error("it is written")
	}
}

// TestGrainsAreForgottenAtTheMemberOfTheMinion: a member that has fetched them from there just before that hears of it.
func TestGrainsAreForgottenAtTheMemberOfTheMinion(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	f, e := lonelyMember(func(*Fleet) any { return map[string]any{} })
	e.Ask = func(context.Context, string, string, any, any) error { return errors.New("nobody is asked") }
	if f.grains.table, err = j.Table(t.Context(), "grains"); err != nil {
		t.Fatal(err)
	}
	const id = salt.MinionID("web1")
	fetch := func() {
		t.Helper()
		e.Came("b", cluster.Minion{ID: id})
		for q, d := range e.take() {
			if err := e.fetch(t.Context(), q, d); err != nil {
				t.Error(err)
			}
		}
	}
	if err := f.learn(id, ofGrains, []byte(`{"role":"front"}`), 0); err != nil {
		t.Fatal(err)
	}
	fetch()
	if grains := f.Grains(id); grains != nil {
		t.Errorf("they are %v", grains)
	}
	if err := f.grains.table.Put(t.Context(), string(id), []byte(`{"role":"back"}`)); err != nil {
		t.Fatal(err)
	}
	if err := f.learn(id, ofGrains, []byte(`{"role":"front"}`), 0); err != nil {
		t.Fatal(err)
	}
	fetch()
	if role := f.Grains(id)["role"]; role != "back" {
		t.Errorf("its role is %v, not the stored one", role)
	}
}

// TestAForgottenMinionWithAWriteUnderWay: nobody knows the revision of a write whose answer was lost, so the entry is
// deleted whatever its revision. Otherwise what another member has stored since stays.
func TestAForgottenMinionWithAWriteUnderWay(t *testing.T) {
	const id = salt.MinionID("web1")
	noWait, cancel := context.WithCancel(t.Context())
	cancel()
	for _, writes := range []bool{false, true} {
		f, _ := lonelyMember(nil)
		f.grains.changed = func(salt.MinionID) {}
		f.grains.hear(heardGrains(t, id, "front", 3))
		if writes {
			if err := f.StoreGrains(noWait, id, map[string]any{"role": "back"}); err != nil {
				t.Fatal(err)
			}
		}
		f.grains.forget(id)
		if !f.grains.void.covers(id, 3) || f.grains.void.covers(id, 4) != writes {
			t.Errorf("a write is under way: %t; a later entry is deleted: %t", writes, !writes)
		}
	}
}
