package journal_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// fillTable stores entries k0, k1 and so on of 4 KiB.
func fillTable(t *testing.T, table *journal.Table, entries int) {
	t.Helper()
	value := []byte(strings.Repeat("x", 4096))
	for n := range entries {
		if err := table.Put(inTime(t), fmt.Sprintf("k%d", n), value); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEachSeesWhatIsReplacedMeanwhile: an entry that is stored anew while a table is read is not left
// out, and one that is removed does not make the reading wait.
func TestEachSeesWhatIsReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	table, err := open(t, startStore(t, t.TempDir())).Table(inTime(t), "facts")
	if err != nil {
		t.Fatal(err)
	}
	const entries = 3000 // more than may be under way
	fillTable(t, table, entries)
	last := fmt.Sprintf("k%d", entries-1)
	found := map[string]string{}
	read := func(meanwhile func(first string)) {
		t.Helper()
		clear(found)
		err := table.Each(inTime(t), func(key string, value []byte) {
			if len(found) == 0 {
				meanwhile(key)
			}
			found[key] = string(value)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	read(func(first string) {
		for _, key := range []string{first, last} { // one that was read, and one that was not
			if err := table.Put(inTime(t), key, []byte("new")); err != nil {
				t.Error(err)
			}
		}
	})
	if len(found) != entries || found[last] != "new" {
		t.Errorf("%d entries, the one that was replaced is %.10q", len(found), found[last])
	}
	begun := time.Now()
	read(func(string) {
		if err := table.Remove(inTime(t), last); err != nil {
			t.Error(err)
		}
	})
	if _, there := found[last]; there || len(found) != entries-1 || time.Since(begun) > 10*time.Second {
		t.Errorf("after %s: %d entries, the one that was removed is there: %t", time.Since(begun), len(found), there)
	}
}

// TestEachIsNeverOld: a member that was away answers whoever reads a table, and has not caught up yet.
// What was deleted before the call is not there, with a mark or without, and what was stored is.
func TestEachIsNeverOld(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	table := openTables(t, s, "facts")[0]
	put := func(key, value string) {
		t.Helper()
		if err := table.Put(inTime(t), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		away := follower(t, s, "KV_facts")
		for n := range 60 {
			put(fmt.Sprintf("stays%d", n), fmt.Sprint("old", round))
			put(fmt.Sprintf("deleted%d", n), "old")
			put(fmt.Sprintf("removed%d", n), "old")
		}
		bustest.Until(t, "it has the table", func() bool { return current(t, s.Members[0].Conn(), "KV_facts", away.Name) })
		s.Isolate(t, away)
		bustest.Until(t, "the others have a leader", func() bool { return table.Put(inTime(t), "there", []byte("x")) == nil })
		for n := range 60 {
			put(fmt.Sprintf("stays%d", n), fmt.Sprint("new", round))
			if err := table.Delete(inTime(t), fmt.Sprintf("deleted%d", n)); err != nil {
				t.Fatal(err)
			}
			if err := table.Remove(inTime(t), fmt.Sprintf("removed%d", n)); err != nil {
				t.Fatal(err)
			}
		}
		s.Rejoin(away)
		for begun := time.Now(); time.Since(begun) < 4*time.Second; {
			found := map[string]string{}
			if err := table.Each(inTime(t), func(key string, value []byte) { found[key] = string(value) }); err != nil {
				t.Fatal(err)
			}
			for n := range 60 {
				if got := found[fmt.Sprintf("stays%d", n)]; got != fmt.Sprint("new", round) {
					t.Fatalf("%s after the call: stays%d is %q", time.Since(begun), n, got)
				}
			}
			if len(found) != 61 {
				t.Fatalf("after %s: %d entries, want 61: what was deleted is there", time.Since(begun), len(found))
			}
			time.Sleep(breath)
		}
	}
}

// follower returns a member that does not lead a stream.
func follower(t *testing.T, s *bustest.System, stream string) *bustest.Member {
	t.Helper()
	js, err := jetstream.New(s.Members[0].Conn())
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.Stream(inTime(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.Members[slices.IndexFunc(s.Members, func(m *bustest.Member) bool {
		return m != s.Members[0] && m.Name != info.CachedInfo().Cluster.Leader
	})]
}
