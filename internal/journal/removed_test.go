package journal_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// copyOf makes a member lead a table and returns the names of the entries and marks that it has.
func copyOf(t *testing.T, m *bustest.Member, table string) (names []string) {
	t.Helper()
	js, err := jetstream.New(m.Conn())
	if err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, m.Name+" leads the table", func() bool {
		s, err := js.Stream(inTime(t), "KV_"+table)
		if err != nil {
			return false
		}
		info, err := s.Info(inTime(t), jetstream.WithSubjectFilter(">"))
		if err != nil {
			return false
		}
		if info.Cluster.Leader == m.Name {
			names = slices.Sorted(maps.Keys(info.State.Subjects))
			return true
		}
		_, _ = m.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_"+table, []byte(`{"placement": {"preferred": "`+m.Name+`"}}`), 5*time.Second)
		return false
	})
	return names
}

// TestWhatIsRemovedStaysSoInACluster: all members are killed, and their servers read all blocks. No copy has an entry again that was
// updated and then removed: what was removed before the latest snapshot of the Raft group is missing in that, and what was removed
// later is in its log, so that each server removes both again.
func TestWhatIsRemovedStaysSoInACluster(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	table := openTables(t, s, "facts")[0]
	revisions := map[string]uint64{}
	write := func(when string, times int) {
		t.Helper()
		for way := range removals {
			for n := range times {
				revision, err := table.Store(inTime(t), when+"/"+way, fmt.Append(nil, when, n))
				if err != nil {
					t.Fatal(err)
				}
				revisions[when+"/"+way] = revision
			}
		}
	}
	remove := func(when string) {
		t.Helper()
		for way, f := range removals {
			if err := f(t, table, when+"/"+way, revisions[when+"/"+way]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := table.Put(inTime(t), "stays", []byte("old")); err != nil {
		t.Fatal(err)
	}
	write("before", 3)
	write("both", 3)
	write("later", 3)
	remove("before")
	for _, m := range s.Members { // each stores a snapshot
		m.Stop()
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	table = openTables(t, s, "facts")[0]
	write("both", 3)
	write("after", 3)
	for _, when := range []string{"both", "later", "after"} {
		remove(when)
	}
	if err := table.Put(inTime(t), "stays", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := table.Delete(inTime(t), "latest"); err != nil { // the mark that is not removed
		t.Fatal(err)
	}
	want := []string{"$KV.facts.=last", "$KV.facts.latest", "$KV.facts.stays"}
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		journal.Marks{Table: table, Log: bustest.Log(t), Every: 200 * time.Millisecond, Most: 1}.Keep(ctx)
	})
	bustest.Until(t, "the marks are removed", func() bool { return messagesOf(t, s.Members[0].Conn(), "facts") <= uint64(len(want)) })
	end()
	wg.Wait()
	for _, m := range s.Members {
		m.Kill(t)
		forget(t, m.Dir)
		s.Rejoin(m)
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	for _, m := range s.Members {
		if got := copyOf(t, m, "facts"); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", m.Name, got, want)
		}
	}
	if b, err := openTables(t, s, "facts")[0].Get(inTime(t), "stays"); err != nil || string(b) != "new" {
		t.Errorf("the entry that stays is %q, %v", b, err)
	}
}
