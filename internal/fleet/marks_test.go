package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// TestWhatIsForgottenLeavesLittle: marks of minions that were forgotten do not accumulate in the tables of grains and of the mine.
func TestWhatIsForgottenLeavesLittle(t *testing.T) {
	t.Parallel()
	const minions, most = 30, 3
	check := func(t *testing.T, nc *nats.Conn, end uint64, fleets ...*Fleet) {
		t.Helper()
		f := fleets[0]
		for n := range minions {
			id := salt.MinionID(fmt.Sprint("web", n))
			if err := f.StoreGrains(t.Context(), id, map[string]any{"n": n}); err != nil {
				t.Fatal(err)
			}
			if err := f.mine.change(t.Context(), id, mine.Change{Put: map[string]mine.Entry{"n": {Data: value.Value{V: n}}}}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for _, f := range fleets {
			f.marks = journal.Marks{Every: 300 * time.Millisecond, Most: most}
			if f.grains.later != nil {
				wg.Go(func() { f.grains.keepLater(ctx, f.Log) })
			}
			wg.Go(func() { f.Keep(ctx, f.Log) })
		}
		t.Cleanup(func() { stop(); wg.Wait() })
		bustest.Until(t, "all is stored", func() bool { return bustest.StoredIn(t, nc, "grains") >= minions })
		for n := range minions {
			f.Forget(salt.MinionID(fmt.Sprint("web", n)))
		}
		for _, table := range []string{"grains", "mine"} {
			bustest.Until(t, "the marks are removed from "+table, func() bool { return bustest.StoredIn(t, nc, table) == most+end })
		}
		for _, f := range fleets {
			bustest.Until(t, "nothing is known of them", func() bool { return len(f.grains.ids()) == 0 && len(f.mine.of("web1")) == 0 })
		}
	}
	t.Run("a single master", func(t *testing.T) {
		t.Parallel()
		b := bustest.StartStore(t)
		check(t, b.Conn(), 0, openAlone(t, b))
	})
	t.Run("three members", func(t *testing.T) {
		t.Parallel()
		s := bustest.StartSystem(t, 3)
		s.Leader(t)
		var fleets []*Fleet
		for _, m := range s.Members {
			fleets = append(fleets, openFleet(t, m))
		}
		check(t, s.Members[0].Conn(), 1, fleets...)
	})
}

func openAlone(t *testing.T, b *bustest.Bus) *Fleet {
	t.Helper()
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	f, err := Open(t.Context(), Options{Journal: j, Keys: noKeys{}, Log: b.Log})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestWhatWasForgottenLongAgo: a member that was away until the marks are gone forgets what is not stored any more; not
// what a minion has told and nobody has stored yet.
func TestWhatWasForgottenLongAgo(t *testing.T) {
	t.Parallel()
	f := openAlone(t, bustest.StartStore(t))
	for _, id := range []salt.MinionID{"web1", "web2"} {
		if err := f.StoreGrains(t.Context(), id, map[string]any{"role": "front"}); err != nil {
			t.Fatal(err)
		}
		if err := f.mine.change(t.Context(), id, mine.Change{Put: map[string]mine.Entry{"n": {Data: value.Value{V: "1"}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.learn("web3", ofGrains, []byte(`{"role":"new"}`), 0); err != nil {
		t.Fatal(err)
	}
	for _, table := range []*journal.Table{f.grains.table, f.mine.table} {
		if err := table.Remove(t.Context(), "web1"); err != nil { // without a mark
			t.Fatal(err)
		}
	}
	for _, r := range []*journal.TableReader{f.grains.reader, f.mine.reader} {
		if err := r.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ids := f.grains.ids()
	slices.Sort(ids)
	if !slices.Equal(ids, []salt.MinionID{"web2", "web3"}) || len(f.mine.of("web1")) > 0 || len(f.mine.of("web2")) != 1 {
		t.Errorf("grains are known of %q, and the mine of web1 %v and web2 %v", ids, f.mine.of("web1"), f.mine.of("web2"))
	}
}
