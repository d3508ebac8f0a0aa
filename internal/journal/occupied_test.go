package journal_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// sizes are those of the blocks of a stream at one member, by the paths of their files.
type sizes map[string]int64

// blocksOf finds the blocks of a stream.
func blocksOf(t *testing.T, dir, stream string) sizes {
	t.Helper()
	found := sizes{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".blk" || !strings.Contains(path, "/"+stream+"/msgs/") {
			return err
		}
		info, err := d.Info()
		if err == nil {
			found[path] = info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// cut takes from the blocks of a stream what was not yet on the disk when the power was cut: a file
// that was removed is so, since the log of the consensus is synced all the time, and with it the
// directories; of one that is there, what it had grown by since is not.
func (synced sizes) cut(t *testing.T, dir, stream string) {
	t.Helper()
	for path := range blocksOf(t, dir, stream) {
		if err := os.Truncate(path, synced[path]); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(filepath.Dir(path), "index.db")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// cutPowerOfAll starts members whose snapshots know what begin stores, has change remove that, and cuts the power of all.
// Of this stream, what was not synced is lost. The members run again then.
func cutPowerOfAll(t *testing.T, stream string, begin, change func(*bustest.Member)) *bustest.Member {
	t.Helper()
	s := bustest.NewSystem(t, 3)
	for _, m := range s.Members {
		m.Change = func(o *broker.Options) { o.Sync = broker.SyncAlways }
	}
	start := func() {
		t.Helper()
		s.Start(t)
		s.Linked(t)
		s.Leader(t)
	}
	start()
	begin(s.Members[0])
	stop := func() bool {
		for _, m := range s.Members {
			m.Stop() // with a snapshot, unless a member has stopped before it had all that the others have
		}
		return !slices.ContainsFunc(s.Members, func(m *bustest.Member) bool {
			found, err := filepath.Glob(filepath.Join(m.Dir, "jetstream", "*", "_js_", "*", "snapshots", "snap.*"))
			return len(found) < 2 || err != nil
		})
	}
	for n := 1; !stop(); n++ {
		if n == 4 {
			t.Fatalf("a member has left no snapshot, %d times", n)
		}
		start()
	}
	synced, begun := map[string]sizes{}, time.Now()
	for _, m := range s.Members {
		if synced[m.Name] = blocksOf(t, m.Dir, stream); len(synced[m.Name]) == 0 {
			t.Fatalf("%s has no stream %s", m.Name, stream)
		}
	}
	start()
	change(s.Members[0])
	for _, m := range s.Members {
		m.Kill(t)
		s.Rejoin(m)
		synced[m.Name].cut(t, m.Dir, stream)
	}
	if took := time.Since(begun); took > 100*time.Second { // the server makes a further snapshot after two minutes
		t.Skipf("this machine is too slow: the start and the writes took %s", took)
	}
	start()
	return s.Members[0]
}

// TestAPowerCutOfAllMembersAfterATableWasEmptied: of a table with copies, the server syncs what a
// snapshot of the consensus is about, and removes blocks that have no messages, whether what it writes
// instead is synced or not. If all members lost the place to which they had it, each of them would wait for
// another one to bring it up to date, and none would lead.
func TestAPowerCutOfAllMembersAfterATableWasEmptied(t *testing.T) {
	t.Parallel()
	jobs := func(table *journal.Table, from, upto int) {
		t.Helper()
		ctx := inTime(t)
		for i := from; i < upto; i++ {
			if err := table.Keep(ctx, fmt.Sprint(i), []byte("a plan")); err != nil {
				t.Fatal(err)
			}
			if err := table.Remove(ctx, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := cutPowerOfAll(t, "KV_plans", func(m *bustest.Member) {
		table := openTable(t, m, "plans")
		jobs(table, 0, 10)
		if err := table.Keep(inTime(t), "long", []byte("a plan")); err != nil {
			t.Fatal(err)
		}
	}, func(m *bustest.Member) {
		table := openTable(t, m, "plans")
		if err := table.Remove(inTime(t), "long"); err != nil {
			t.Fatal(err)
		}
		jobs(table, 10, 20)
	})
	table := openTable(t, first, "plans")
	jobs(table, 20, 30)
	if keys, err := table.Keys(journal.Starting(inTime(t))); err != nil || len(keys) > 0 {
		t.Errorf("the table has %q, %v", keys, err)
	}
}

// TestAPowerCutOfAllMembersAfterAJournalWasPurged: the same for a journal from which all events were to be removed.
func TestAPowerCutOfAllMembersAfterAJournalWasPurged(t *testing.T) {
	t.Parallel()
	purges := map[string]func(p journal.Purger, end uint64) (uint64, error){
		"all": func(p journal.Purger, end uint64) (uint64, error) { return p.PurgeBefore(inTime(t), end) },
		"by tag": func(p journal.Purger, end uint64) (uint64, error) {
			return p.PurgeWhere(inTime(t), end, func([]byte) (bool, error) { return true, nil })
		},
	}
	for how, purge := range purges {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			appendOne := func(m *bustest.Member, tag string) (*journal.Journal, uint64) {
				t.Helper()
				j := openMember(t, m)
				seq, err := j.Append(inTime(t), filled(tag, "x", 10), "")
				if err != nil {
					t.Fatal(err)
				}
				return j, seq
			}
			last := uint64(0)
			first := cutPowerOfAll(t, "EVENTS_m1", func(m *bustest.Member) { appendOne(m, "old/1") }, func(m *bustest.Member) {
				var j *journal.Journal
				j, last = appendOne(m, "old/2")
				if _, err := purge(j.Purger(), last+1); err != nil {
					t.Fatal(err)
				}
			})
			if _, seq := appendOne(first, "new"); seq <= last {
				t.Errorf("an event has the number %d, after %d", seq, last)
			}
		})
	}
}

// TestAPowerCutOfAllMembersAfterTheLastEventOfAJournalWasTooOld: the same for a journal in which nothing is stored for so
// long that its newest event is removed by its age, whether its member runs or not.
func TestAPowerCutOfAllMembersAfterTheLastEventOfAJournalWasTooOld(t *testing.T) {
	t.Parallel()
	const age = 30 * time.Second
	aging := func(o *journal.Options) { o.MaxAge = age }
	for runs, keeper := range map[string]int{"its member runs": 0, "another member runs": 1} {
		t.Run(runs, func(t *testing.T) {
			t.Parallel()
			last, stored := uint64(0), time.Time{}
			appendOne := func(m *bustest.Member) {
				t.Helper()
				seq, err := openMember(t, m, aging).Append(inTime(t), filled("event", "x", 10), "")
				if err != nil {
					t.Fatal(err)
				}
				if seq <= last {
					t.Errorf("an event has the number %d, after %d", seq, last)
				}
				last, stored = seq, time.Now()
			}
			first := cutPowerOfAll(t, "EVENTS_m1", appendOne, func(m *bustest.Member) {
				openMember(t, m.System.Members[keeper], aging)
				if took := time.Since(stored); took > age/2 {
					t.Skipf("this machine is too slow: the start took %s", took)
				}
				list, err := journal.Peers(inTime(t), m.Conn(), "m2", m.Store())
				if err != nil || len(list) != 1 {
					t.Fatalf("there are the journals %v, %v", list, err)
				}
				opened := time.Now() // the start of its own member has stored a message before
				bustest.Until(t, "the newest message of then is too old", func() bool {
					e, err := list[0].Extent(inTime(t))
					return err == nil && (e.Count == 0 || e.Oldest.After(opened))
				})
			})
			appendOne(first)
		})
	}
}
