package fleet

import (
	"fmt"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestUnacceptedKeysLeaveNothing: of an id about which nothing is stored, forgetting stores nothing. Anybody can make a key
// wait, and give way again. What is stored and not known here is deleted all the same.
func TestUnacceptedKeysLeaveNothing(t *testing.T) {
	t.Parallel()
	const unaccepted = 50
	flood := func(t *testing.T, f *Fleet, stored func() uint64) {
		t.Helper()
		const late = salt.MinionID("late")
		if err := f.grains.table.Put(t.Context(), string(late), []byte(`{"role":"front"}`)); err != nil { // not heard of here
			t.Fatal(err)
		}
		before := stored()
		for n := range unaccepted {
			f.Forget(salt.MinionID(fmt.Sprint("unaccepted", n)))
		}
		f.Forget(late)
		for _, void := range []*deletions{f.grains.void, f.mine.void} {
			bustest.Until(t, "all is deleted", func() bool { return void.all(t.Context(), f.due, f.Log) })
		}
		if now := stored(); now != before {
			t.Errorf("%d messages are stored, %d before", now, before)
		}
		if text := inTable(t, f, late); text != "" {
			t.Errorf("what was not known here is still stored: %s", text)
		}
	}
	t.Run("a single master", func(t *testing.T) {
		t.Parallel()
		b := bustest.StartStore(t)
		j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(j.Close)
		f, err := Open(t.Context(), Options{Journal: j, Keys: noKeys{}, Log: b.Log})
		if err != nil {
			t.Fatal(err)
		}
		flood(t, f, func() uint64 { return bustest.StoredIn(t, b.Conn(), "grains") })
	})
	t.Run("a member", func(t *testing.T) {
		t.Parallel()
		s := bustest.StartSystem(t, 3)
		s.Leader(t)
		m := s.Members[0]
		flood(t, openFleet(t, m), func() uint64 { return bustest.StoredIn(t, m.Conn(), "grains") })
	})
}
