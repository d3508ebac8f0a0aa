package journal_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/uptime"
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

// TestADeletedEntryIsNotReadWhereAMemberIsMissing: a leader that hears only one of the others may have been
// replaced by the third one. What is read there is current, and a deleted entry is not.
func TestADeletedEntryIsNotReadWhereAMemberIsMissing(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	tables := openTables(t, s, "tokens")
	for _, key := range []string{"a", "b"} {
		if err := tables[0].Put(inTime(t), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	var confirmed []*journal.ConfirmedTable
	for _, table := range tables[:2] {
		confirmed = append(confirmed, table.Confirmed())
	}
	first := revisionOf(t, tables[0], "b")
	s.Members[2].Kill(t)
	bustest.Until(t, "an entry is stored again before it is shown", func() bool {
		b, err := confirmed[0].Get(inTime(t), "b")
		if err == nil && string(b) != "b" {
			t.Fatalf("it is %q", b)
		}
		return revisionOf(t, tables[0], "b") > first
	})
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			if b, err := confirmed[n%2].Get(inTime(t), "b"); err != nil || string(b) != "b" {
				t.Errorf("one of many at once: %q, %v", b, err)
			}
		})
	}
	all.Wait()
	if b, err := confirmed[1].Get(inTime(t), "none"); b != nil || err != nil {
		t.Errorf("there is no such entry, and it says %q, %v", b, err)
	}
	if err := tables[1].Freeze(inTime(t), "a"); err != nil {
		t.Fatal(err)
	}
	if err := tables[0].Delete(inTime(t), "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if b, err := confirmed[1].Get(ctx, "a"); err == nil {
		t.Errorf("what was deleted is shown: %q", b)
	}
}

// TestWhatWasDeletedDuringAPauseIsNotRead: a member, or the one that leads, was stopped or suspended for some time, in which
// another one was elected and has deleted an entry. What the server says at first is what it knew before. An
// entry is then stored again before it is shown, also when it is the first that is read since long.
func TestWhatWasDeletedDuringAPauseIsNotRead(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	tables := openTables(t, s, "tokens")
	if err := tables[0].Put(inTime(t), "a", []byte("a")); err != nil {
		t.Fatal(err)
	}
	up := uptime.Moment(time.Hour)
	c := tables[1].Confirmed()
	c.Clock(func() uptime.Moment { return up })
	get := func() (stored bool) {
		t.Helper()
		before := revisionOf(t, tables[0], "a")
		if b, err := c.Get(inTime(t), "a"); err != nil || string(b) != "a" {
			t.Fatalf("it is %q, %v", b, err)
		}
		return revisionOf(t, tables[0], "a") > before
	}
	if !get() {
		t.Error("the first one is read as a server knows it")
	}
	bustest.Until(t, "all are heard for some time, and nothing is stored again", func() bool {
		up = up.Add(600 * time.Millisecond)
		return !get()
	})
	up = up.Add(time.Minute)
	if !get() {
		t.Error("after a pause one is read as a server knows it")
	}
	bustest.Until(t, "once more nothing is stored again", func() bool {
		up = up.Add(600 * time.Millisecond)
		return !get()
	})
	if err := tables[1].Freeze(inTime(t), "a"); err != nil {
		t.Fatal(err)
	}
	if err := tables[0].Delete(inTime(t), "a"); err != nil {
		t.Fatal(err)
	}
	up = up.Add(time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if b, err := c.Get(ctx, "a"); err == nil {
		t.Errorf("what was deleted during a pause is shown: %q", b)
	}
}

func revisionOf(t *testing.T, table *journal.Table, key string) uint64 {
	t.Helper()
	e, err := table.Entry(inTime(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return e.Revision
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
