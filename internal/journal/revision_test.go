package journal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// openTables opens the same table at each member.
func openTables(t *testing.T, s *bustest.System, name string) (list []*journal.Table) {
	t.Helper()
	for _, m := range s.Members {
		table, err := openMember(t, m).Table(inTime(t), name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, table)
	}
	return list
}

// TestOneWriterWinsARevision: three members count in one entry, each time on from what they have
// read, while one of them is killed. No number is given twice, and the last one is what was
// acknowledged, except for writes whose answer was lost.
func TestOneWriterWinsARevision(t *testing.T) {
	t.Parallel()
	const each = 150
	s := startMembers(t)
	tables := openTables(t, s, "count")
	var mu sync.Mutex
	var writers sync.WaitGroup
	given := map[string]bool{}
	lost, unknown, killed := 0, 0, make(chan struct{})
	count := func(i, n int) bool {
		e, err := tables[i].Entry(inTime(t), "n")
		if err != nil {
			return false
		}
		next := 0
		fmt.Sscan(string(e.Value), &next)
		next++
		_, err = tables[i].Update(inTime(t), "n", fmt.Appendf(nil, "%d m%d %d", next, i, n), e.Revision)
		mu.Lock()
		defer mu.Unlock()
		switch text := fmt.Sprint(next); {
		case errors.Is(err, journal.ErrChanged):
			lost++
		case err != nil:
			unknown++
		case given[text]:
			t.Errorf("%s was given twice", text)
		default:
			given[text] = true
		}
		return err == nil
	}
	for i := range 2 {
		writers.Go(func() {
			for n := 0; n < each; {
				if count(i, n) {
					n++
				}
				if i == 0 && n == each/3 {
					select {
					case <-killed:
					default:
						s.Members[2].Kill(t)
						close(killed)
					}
				}
			}
		})
	}
	writers.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-killed:
				return
			default:
				count(2, n)
			}
		}
	})
	writers.Wait()
	e, err := tables[0].Entry(inTime(t), "n")
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	fmt.Sscan(string(e.Value), &last)
	if last < len(given) || last > len(given)+unknown || len(given) < 2*each {
		t.Errorf("it is %d, %d were given, the result of %d is unknown", last, len(given), unknown)
	}
	if lost == 0 {
		t.Error("nobody was ever too late, so nothing was tested")
	}
	t.Logf("%d given, %d times somebody else was first, %d unknown", len(given), lost, unknown)
}

// TestRevisionsOfOneEntry: an entry is created once, changed and deleted at its revision only, and
// can be created again; what is removed is gone only up to the given revision.
func TestRevisionsOfOneEntry(t *testing.T) {
	t.Parallel()
	j := open(t, startStore(t, t.TempDir()))
	table, err := j.Table(t.Context(), "keys")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must := func(revision uint64, err error) uint64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	late := func(err error) {
		t.Helper()
		if !errors.Is(err, journal.ErrChanged) {
			t.Errorf("the error is %v", err)
		}
	}
	if e, err := table.Entry(ctx, "a b"); err != nil || e.Revision != 0 || e.Value != nil {
		t.Errorf("before: %v, %v", e, err)
	}
	first := must(table.Create(ctx, "a b", []byte("1")))
	_, err = table.Create(ctx, "a b", []byte("2"))
	late(err)
	second := must(table.Update(ctx, "a b", []byte("2"), first))
	_, err = table.Update(ctx, "a b", []byte("3"), first)
	late(err)
	late(table.DeleteAt(ctx, "a b", first))
	if e, err := table.Entry(ctx, "a b"); err != nil || e.Revision != second || string(e.Value) != "2" {
		t.Errorf("after the update: %v, %v", e, err)
	}
	must(0, table.DeleteAt(ctx, "a b", second))
	if e, err := table.Entry(ctx, "a b"); err != nil || e.Revision <= second || e.Value != nil {
		t.Errorf("after the deletion: %v, %v", e, err)
	}
	third := must(table.Create(ctx, "a b", nil))
	must(0, table.RemoveAt(ctx, "a b", second))
	if e, err := table.Entry(ctx, "a b"); err != nil || e.Revision != third || e.Value == nil {
		t.Errorf("after an older revision was removed: %v, %v", e, err)
	}
	must(0, table.RemoveAt(ctx, "a b", third))
	if e, err := table.Entry(ctx, "a b"); err != nil || e.Revision != 0 {
		t.Errorf("after the removal: %v, %v", e, err)
	}
}

// TestAServerThatLacksAnEntryIsNotBelieved: a server that led the table before an entry was stored refuses to change
// it, and says that there is none. That is no removal by somebody else. An entry that was removed is no longer
// there, whatever else is stored.
func TestAServerThatLacksAnEntryIsNotBelieved(t *testing.T) {
	t.Parallel()
	j := open(t, startStore(t, t.TempDir()))
	ctx := t.Context()
	for name, change := range map[string]func(*journal.Table, uint64) error{
		"update": func(t *journal.Table, revision uint64) error {
			_, err := t.Update(ctx, "a", []byte("2"), revision)
			return err
		},
		"delete": func(t *journal.Table, revision uint64) error { return t.DeleteAt(ctx, "a", revision) },
	} {
		for _, removed := range []bool{false, true} {
			table, err := j.Table(ctx, fmt.Sprint(name, removed))
			if err != nil {
				t.Fatal(err)
			}
			revision, err := table.Create(ctx, "a", []byte("1"))
			want := error(nil)
			if err == nil && removed {
				want = journal.ErrChanged
				err = table.RemoveAt(ctx, "a", revision)
			}
			if err != nil {
				t.Fatal(err)
			}
			table.Lack(revision, 2)
			if err := change(table, revision); !errors.Is(err, want) {
				t.Errorf("%s, removed %t: %v", name, removed, err)
			}
		}
	}
}

// TestADeletionIsNotGivenUp: a server that led the table before refuses a deletion. That is no change by
// somebody else: the entry is deleted all the same, or it is noticed that it is.
func TestADeletionIsNotGivenUp(t *testing.T) {
	t.Parallel()
	j := open(t, startStore(t, t.TempDir()))
	for _, lost := range []bool{false, true} {
		table, err := j.Table(t.Context(), fmt.Sprint("keys", lost))
		if err != nil {
			t.Fatal(err)
		}
		revision, err := table.Create(t.Context(), "a", []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		table.Refuse(lost)
		if err := table.DeleteAt(t.Context(), "a", revision); err != nil {
			t.Errorf("lost %v: %v", lost, err)
		}
		if e, err := table.Entry(t.Context(), "a"); err != nil || e.Value != nil {
			t.Errorf("lost %v: %q is left, %v", lost, e.Value, err)
		}
		if revision, err = table.Create(t.Context(), "a", []byte("2")); err != nil {
			t.Fatal(err)
		}
		if err := table.DeleteAt(t.Context(), "a", revision-1); !errors.Is(err, journal.ErrChanged) {
			t.Errorf("lost %v: an older revision: %v", lost, err)
		}
	}
}

// watching is what a Watch has brought.
type watching struct {
	mu    sync.Mutex
	order []string
	marks int
	last  uint64
	state map[string]string
}

func (w *watching) hear(e *journal.TableEntry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e == nil {
		w.marks++
		w.order = append(w.order, "all")
		return nil
	}
	if e.Revision <= w.last {
		return fmt.Errorf("%d came after %d", e.Revision, w.last)
	}
	w.last = e.Revision
	if e.Value == nil {
		delete(w.state, e.Key)
		w.order = append(w.order, "-"+e.Key)
		return nil
	}
	w.state[e.Key] = string(e.Value)
	w.order = append(w.order, e.Key)
	return nil
}

func (w *watching) has(want map[string]string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.state, want)
}

func (w *watching) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.order, " ")
}

// startWatch watches a table after a revision until the test ends.
func startWatch(t *testing.T, table *journal.Table, after uint64) *watching {
	t.Helper()
	w := &watching{state: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- table.Watch(ctx, after, w.hear) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("the watch has ended: %v", err)
		}
	})
	return w
}

// TestAWatchBringsAllInOrder: what is present comes first, in the order of the revisions, and is
// followed by the mark; then each new entry comes, deletions too. A second watch goes on after any
// revision.
func TestAWatchBringsAllInOrder(t *testing.T) {
	t.Parallel()
	j := open(t, startStore(t, t.TempDir()))
	table, err := j.Table(t.Context(), "keys")
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string) {
		t.Helper()
		if err := table.Put(t.Context(), key, []byte("of "+key)); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(key string) {
		t.Helper()
		if err := table.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	empty := startWatch(t, table, 0)
	bustest.Until(t, "an empty table is marked", func() bool { return empty.text() == "all" })
	for _, key := range []string{"c", "a", "b", "d"} {
		put(key)
	}
	remove("b")
	bustest.Until(t, "all come", func() bool { return strings.HasSuffix(empty.text(), "d -b") })
	later := startWatch(t, table, 0)
	bustest.Until(t, "the present ones come", func() bool { return later.text() == "c a d -b all" })
	put("a")
	remove("c")
	bustest.Until(t, "the new ones come", func() bool { return later.text() == "c a d -b all a -c" && empty.has(later.state) })
	again := startWatch(t, table, 4)
	bustest.Until(t, "those after the fourth come", func() bool { return again.text() == "-b a -c all" })
	stop := errors.New("enough")
	if err := table.Watch(t.Context(), 0, func(*journal.TableEntry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("it ends with %v", err)
	}
}

// TestAWatchGoesOnOverElections: while one member after the other is cut off, and one is killed and started again,
// the watches of all members bring the same entries in the same order.
func TestAWatchGoesOnOverElections(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	tables := openTables(t, s, "keys")
	var watches []*watching
	for _, table := range tables {
		watches = append(watches, startWatch(t, table, 0))
	}
	want := map[string]string{}
	write := func(by int) {
		t.Helper()
		for n := range 20 {
			key := fmt.Sprint("k", (len(want)+n)%30)
			text := fmt.Sprint(by, " ", n)
			bustest.Until(t, "an entry is stored", func() bool { return tables[by].Put(inTime(t), key, []byte(text)) == nil })
			want[key] = text
		}
	}
	write(0)
	longest := time.Duration(0)
	for i, m := range s.Members[:2] {
		s.Isolate(t, m)
		begun := time.Now()
		write((i + 1) % 3)
		for k, w := range watches {
			if k != i {
				bustest.Until(t, "the others have all", func() bool { return w.has(want) })
			}
		}
		longest = max(longest, time.Since(begun))
		if watches[i].has(want) {
			t.Errorf("%s is cut off, and knows everything", m.Name)
		}
		s.Rejoin(m)
		s.Linked(t)
		bustest.Until(t, m.Name+" has all again", func() bool { return watches[i].has(want) })
	}
	m := s.Members[2]
	m.Kill(t)
	write(0)
	bustest.Until(t, "the other has all", func() bool { return watches[1].has(want) && watches[0].has(want) })
	s.Rejoin(m)
	m.Start(t)
	s.Linked(t)
	write(1)
	again := startWatch(t, openTable(t, m, "keys"), 0)
	bustest.Until(t, "all have all", func() bool { return watches[1].has(want) && watches[0].has(want) && again.has(want) })
	if got := slices.Compact([]int{watches[0].marks, watches[1].marks}); len(got) != 1 || got[0] != 1 {
		t.Errorf("%v marks", got)
	}
	t.Logf("the longest round without a member took %s", longest)
}

func openTable(t *testing.T, m *bustest.Member, name string) *journal.Table {
	t.Helper()
	table, err := openMember(t, m).Table(inTime(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestReadsAreNeverStale: whoever learns that something was stored reads it at every member.
func TestReadsAreNeverStale(t *testing.T) {
	t.Parallel()
	const writers, rounds = 12, 15
	filler := strings.Repeat("x", 20<<10) // that the copies take some time to store
	tables := openTables(t, startMembers(t), "keys")
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			key, stored := fmt.Sprint("k", w), uint64(0)
			for n := range rounds {
				text := fmt.Sprint(n) + filler
				revision, err := tables[(w+n)%3].Update(inTime(t), key, []byte(text), stored)
				if err != nil {
					t.Error(err)
					return
				}
				stored = revision
				for i, table := range tables {
					e, err := table.Entry(inTime(t), key)
					b, bad := table.Get(inTime(t), key)
					if err != nil || bad != nil || e.Revision != stored || string(b) != text {
						t.Errorf("m%d reads %.3q of %d and %.3q, after %.3q was stored as %d: %v, %v", i+1, e.Value, e.Revision, b, text, stored, err, bad)
						return
					}
				}
			}
		})
	}
	running.Wait()
}
