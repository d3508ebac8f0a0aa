package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// others implements Members: nobody is told.
type others struct{}

func (others) Joined(cluster.Minion) {}
func (others) Left(salt.MinionID)    {}

// openFleet is the fleet of a member of a real cluster.
func openFleet(t *testing.T, m *bustest.Member) *Fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), 2*time.Minute)
	defer cancel()
	j, err := journal.Open(ctx, m.Conn(), journal.Options{Store: m.Store(), Copies: 3, Name: m.Name, Server: m.Name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	f, err := Open(ctx, Options{Journal: j, Keys: noKeys{}, Members: others{}, Log: m.Log})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// memberFleet is that of a member whose grains are written until the test ends.
func memberFleet(t *testing.T, m *bustest.Member) *Fleet {
	t.Helper()
	f := openFleet(t, m)
	life, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	log := m.Log // that of the member changes when it is killed
	wg.Go(func() { f.grains.keepLater(life, log) })
	wg.Go(func() { f.grains.void.run(life, f.due, log) })
	t.Cleanup(func() { end(); wg.Wait() })
	return f
}

// inTable returns which grains of a minion are stored, "" for none.
func inTable(t *testing.T, f *Fleet, id salt.MinionID) string {
	t.Helper()
	b, err := f.grains.table.Get(t.Context(), string(id))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestGrainsDoNotWaitForTheDead: the member that leads the table of grains is killed. A minion whose
// grains are new is answered at once and counts with them, and they are stored when the others have
// a leader again: the newest ones, and none of a minion that was deleted. Nobody waits for the deletion.
func TestGrainsDoNotWaitForTheDead(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	fleets := map[string]*Fleet{}
	for _, m := range s.Members {
		fleets[m.Name] = memberFleet(t, m)
	}
	if err := fleets["m1"].StoreGrains(t.Context(), "old", map[string]any{"n": 0}); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "its grains are stored", func() bool { return inTable(t, fleets["m1"], "old") == `{"n":0}` })
	leads := ""
	bustest.Until(t, "the table has a leader", func() bool {
		var info struct{ Cluster struct{ Leader string } }
		m, err := s.Members[0].Conn().Request("$JS.API.STREAM.INFO.KV_grains", nil, time.Second)
		if err == nil {
			err = json.Unmarshal(m.Data, &info)
		}
		leads = info.Cluster.Leader
		return err == nil && leads != ""
	})
	s.Members[slices.IndexFunc(s.Members, func(m *bustest.Member) bool { return m.Name == leads })].Kill(t)
	delete(fleets, leads)
	f := fleets[slices.Sorted(maps.Keys(fleets))[0]]
	begun := time.Now()
	f.Forget("old")
	if took := time.Since(begun); f.Grains("old") != nil || took > 2*time.Second {
		t.Errorf("after %s a minion that is to be forgotten has %v", took, f.Grains("old"))
	}
	for n, id := range []salt.MinionID{"web1", "web1", "web2"} {
		begun := time.Now()
		err := f.StoreGrains(t.Context(), id, map[string]any{"n": n})
		if took := time.Since(begun); err != nil || took > 2*time.Second { // a moment; an election takes four seconds at least
			t.Fatalf("the grains of %s after %s: %v", id, took, err)
		}
		if got, _ := value.Encode(f.Grains(id)); string(got) != fmt.Sprintf(`{"n":%d}`, n) {
			t.Fatalf("%s counts with %s", id, got)
		}
	}
	if len(f.grains.later.take()) == 0 {
		t.Fatal("there was a leader all the time")
	}
	bustest.Until(t, "the newest are stored", func() bool { return inTable(t, f, "web1") == `{"n":1}` && inTable(t, f, "web2") == `{"n":2}` })
	bustest.Until(t, "nothing is due", func() bool { return len(f.grains.later.take()) == 0 })
	bustest.Until(t, "those of the forgotten one are deleted", func() bool { return inTable(t, f, "old") == "" })
	f.grains.mu.Lock()
	delete(f.grains.byID, "web3") // its key is deleted while its grains are on their way
	f.grains.later.put("web3", []byte(`{"n":3}`))
	f.grains.mu.Unlock()
	bustest.Until(t, "nothing is due", func() bool { return len(f.grains.later.take()) == 0 })
	if got := inTable(t, f, "web3"); got != "" {
		t.Errorf("grains of a deleted minion are stored: %s", got)
	}
}
