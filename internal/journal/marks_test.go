package journal_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// messagesOf counts the messages of a table, marks included, as its leader has them.
func messagesOf(t *testing.T, nc *nats.Conn, table string) uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(inTime(t), "KV_"+table)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// keepMarks removes marks until the test ends.
func keepMarks(t *testing.T, m journal.Marks) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { m.Keep(ctx) })
	t.Cleanup(func() { end(); wg.Wait() })
}

// TestMarksAreRemoved: the marks of deleted entries do not accumulate. The newest ones stay, and one that says until when it
// stays does so. What is stored, again or for the first time, is not touched.
func TestMarksAreRemoved(t *testing.T) {
	t.Parallel()
	const deleted, most = 40, 5
	check := func(t *testing.T, nc *nats.Conn, tables []*journal.Table) {
		t.Helper()
		table := tables[0]
		put := func(key string) {
			t.Helper()
			if err := table.Put(inTime(t), key, []byte(key)); err != nil {
				t.Fatal(err)
			}
		}
		put("stays")
		for n := range deleted {
			put(fmt.Sprint("gone", n))
			if err := table.Delete(inTime(t), fmt.Sprint("gone", n)); err != nil {
				t.Fatal(err)
			}
		}
		for key, until := range map[string]time.Time{"revoked": time.Now().Add(time.Hour), "expired": time.Now().Add(-time.Hour)} {
			put(key)
			if err := table.DeleteUntil(inTime(t), key, until); err != nil {
				t.Fatal(err)
			}
		}
		put("gone3")
		for n := range most {
			if err := table.Delete(inTime(t), fmt.Sprint("latest", n)); err != nil {
				t.Fatal(err)
			}
		}
		for _, one := range tables {
			keepMarks(t, journal.Marks{Table: one, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Every: 300 * time.Millisecond, Most: most})
		}
		want := uint64(2 + 1 + most) // with the revoked one
		if len(tables) > 1 {
			want++ // the message at the end
		}
		bustest.Until(t, "the old marks are removed", func() bool { return messagesOf(t, nc, table.Name()) <= want })
		for range 10 { // several more rounds
			if n := messagesOf(t, nc, table.Name()); n != want {
				t.Fatalf("%d messages are left, want %d", n, want)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if keys, err := table.Keys(inTime(t)); err != nil || !slices.Equal(keys, []string{"gone3", "stays"}) {
			t.Errorf("the table has %q, %v", keys, err)
		}
		for key, marked := range map[string]bool{"revoked": true, "expired": false, "latest0": true, "gone0": false} {
			if e, err := table.Entry(inTime(t), key); err != nil || e.Value != nil || (e.Revision > 0) != marked {
				t.Errorf("%s is %+v, %v; marked: %t", key, e, err, marked)
			}
		}
	}
	t.Run("a single master", func(t *testing.T) {
		t.Parallel()
		b := startStore(t, t.TempDir())
		table, err := open(t, b).Table(inTime(t), "facts")
		if err != nil {
			t.Fatal(err)
		}
		check(t, b.Conn(), []*journal.Table{table})
	})
	t.Run("three members", func(t *testing.T) {
		t.Parallel()
		s := startMembers(t)
		check(t, s.Members[0].Conn(), openTables(t, s, "facts"))
	})
}

// TestMarksOfAnOlderVersionStay: where marks say until when they stay, one that does not is not removed.
func TestMarksOfAnOlderVersionStay(t *testing.T) {
	t.Parallel()
	b := startStore(t, t.TempDir())
	table, err := open(t, b).Table(inTime(t), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	const each = 10
	for n := range each {
		if err := table.Delete(inTime(t), fmt.Sprint("old", n)); err != nil {
			t.Fatal(err)
		}
		if err := table.DeleteUntil(inTime(t), fmt.Sprint("new", n), time.Now().Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	keepMarks(t, journal.Marks{Table: table, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Dated: true, Every: 100 * time.Millisecond, Most: 1})
	bustest.Until(t, "the others are removed", func() bool { return messagesOf(t, b.Conn(), "tokens") <= each+1 })
	for range 5 { // several more rounds
		if n := messagesOf(t, b.Conn(), "tokens"); n != each+1 {
			t.Fatalf("%d marks are left, want %d", n, each+1)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestAReaderThatWasAwayForLong: a member that was cut off until the marks of what was deleted meanwhile are gone learns
// of that, and of what was stored.
func TestAReaderThatWasAwayForLong(t *testing.T) {
	t.Parallel()
	const miss = 2 * time.Second
	s := startMembers(t)
	tables := openTables(t, s, "facts")
	if err := tables[0].Put(inTime(t), "stays", []byte("1")); err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		if err := tables[0].Put(inTime(t), fmt.Sprint("gone", n), []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	known := map[string]string{}
	keys := func() (list []string) {
		mu.Lock()
		defer mu.Unlock()
		for key := range known {
			list = append(list, key)
		}
		slices.Sort(list)
		return list
	}
	away := s.Members[2]
	r := &journal.TableReader{Table: tables[2], Known: keys, Hear: func(e *journal.TableEntry) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case e == nil:
		case e.Value == nil:
			delete(known, e.Key)
		default:
			known[e.Key] = string(e.Value)
		}
	}}
	r.Miss(miss)
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := r.Follow(ctx); err != nil && ctx.Err() == nil {
				time.Sleep(breath)
			}
		}
	})
	t.Cleanup(func() { end(); wg.Wait() })
	bustest.Until(t, "it knows all", func() bool { return len(keys()) == 11 })
	s.Isolate(t, away)
	bustest.Until(t, "the others have a leader", func() bool { return tables[0].Put(inTime(t), "new", []byte("1")) == nil })
	for n := range 10 {
		if err := tables[0].Delete(inTime(t), fmt.Sprint("gone", n)); err != nil {
			t.Fatal(err)
		}
		if err := tables[0].Remove(inTime(t), fmt.Sprint("gone", n)); err != nil { // as the mark later
			t.Fatal(err)
		}
	}
	// If it led the table, it is heard by its own reader until it has noticed that it is cut off.
	bustest.Until(t, "the one that is away has no leader", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := tables[2].Entry(ctx, "stays")
		return err != nil
	})
	for begun := time.Now(); time.Since(begun) < miss+time.Second; {
		time.Sleep(breath)
	}
	s.Rejoin(away)
	sure := tables[2].Confirmed() // as tokens are read
	bustest.Until(t, "it reads the table again", func() bool { v, err := sure.Get(inTime(t), "new"); return v != nil && err == nil })
	if v, err := sure.Get(inTime(t), "gone1"); v != nil || err != nil {
		t.Errorf("what was deleted is %q, %v", v, err)
	}
	want := []string{"new", "stays"}
	bustest.Until(t, "it knows what is there", func() bool { return slices.Equal(keys(), want) })
	if err := tables[0].Delete(inTime(t), "stays"); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "it follows", func() bool { return slices.Equal(keys(), []string{"new"}) })
}
