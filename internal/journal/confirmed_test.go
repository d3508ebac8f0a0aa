package journal_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestADeletedEntryIsNotReadWhereItsLeaderIsCutOff: the leader of a table is cut off, and the others
// delete an entry. The old leader does not know that, and a confirmed Get there fails until it does.
func TestADeletedEntryIsNotReadWhereItsLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	tables := openTables(t, s, "tokens")
	if err := tables[0].Put(inTime(t), "a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	var confirmed []*journal.ConfirmedTable
	for _, table := range tables {
		c := table.Confirmed()
		if b, err := c.Get(inTime(t), "a"); err != nil || string(b) != "1" {
			t.Fatalf("before: %q, %v", b, err)
		}
		confirmed = append(confirmed, c)
	}
	old := leaderOf(t, s, "KV_tokens")
	other := (old + 1) % len(s.Members)
	s.Isolate(t, s.Members[old])
	bustest.Until(t, "the others delete the entry", func() bool { return tables[other].Delete(inTime(t), "a") == nil })

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if b, err := confirmed[old].Get(ctx, "a"); err == nil {
		t.Errorf("the leader that is cut off says %q", b)
	}
	b, err := tables[old].Get(ctx, "a")
	t.Logf("without confirmation it says %q, %v", b, err)
	if b, err := confirmed[other].Get(inTime(t), "a"); b != nil || err != nil {
		t.Errorf("another member says %q, %v", b, err)
	}
	s.Rejoin(s.Members[old])
	bustest.Until(t, "it knows that the entry is deleted", func() bool {
		b, err := confirmed[old].Get(inTime(t), "a")
		if b != nil {
			t.Errorf("the leader that is back says %q", b)
		}
		return err == nil
	})
}

// leaderOf is the index of the member that leads a stream.
func leaderOf(t *testing.T, s *bustest.System, stream string) int {
	t.Helper()
	js, err := jetstream.New(s.Members[0].Conn())
	if err != nil {
		t.Fatal(err)
	}
	found, err := js.Stream(inTime(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Members, func(m *bustest.Member) bool { return m.Name == found.CachedInfo().Cluster.Leader })
	if i < 0 {
		t.Fatalf("%s leads %s", found.CachedInfo().Cluster.Leader, stream)
	}
	return i
}
