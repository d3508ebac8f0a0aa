package journal_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// sizes are those of the blocks of a table at one member, by the paths of their files.
type sizes map[string]int64

// blocksOf finds the blocks of a table.
func blocksOf(t *testing.T, dir, table string) sizes {
	t.Helper()
	found := sizes{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".blk" || !strings.Contains(path, "/KV_"+table+"/msgs/") {
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

// cut takes from the blocks of a table what was not yet on the disk when the power was cut: a file
// that was removed is so, since the log of the consensus is synced all the time, and with it the
// directories; of one that is there, what it had grown by since is not.
func (synced sizes) cut(t *testing.T, dir, table string) {
	t.Helper()
	for path := range blocksOf(t, dir, table) {
		if err := os.Truncate(path, synced[path]); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(filepath.Dir(path), "index.db")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// TestAPowerCutOfAllMembersAfterATableWasEmptied: of a table with copies, the server syncs what a
// snapshot of the consensus is about, and removes blocks that have no messages, whether what it writes
// instead is synced or not. If all members lost the place to which they had it, each of them would wait for
// another one to bring it up to date, and none would lead.
func TestAPowerCutOfAllMembersAfterATableWasEmptied(t *testing.T) {
	t.Parallel()
	s := bustest.NewSystem(t, 3)
	for _, m := range s.Members {
		m.Change = func(o *broker.Options) { o.Sync = broker.SyncAlways }
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	table := openTable(t, s.Members[0], "plans")
	jobs := func(ctx context.Context, from, upto int) {
		t.Helper()
		for i := from; i < upto; i++ {
			if err := table.Keep(ctx, fmt.Sprint(i), []byte("a plan")); err != nil {
				t.Fatal(err)
			}
			if err := table.Remove(ctx, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	jobs(inTime(t), 0, 10)
	if err := table.Keep(inTime(t), "long", []byte("a plan")); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Members {
		m.Stop() // with a snapshot
	}
	synced, begun := map[string]sizes{}, time.Now()
	for _, m := range s.Members {
		if found, err := filepath.Glob(filepath.Join(m.Dir, "jetstream", "*", "_js_", "*", "snapshots", "snap.*")); len(found) < 2 || err != nil {
			t.Fatalf("%s has left the snapshots %q, %v", m.Name, found, err)
		}
		synced[m.Name] = blocksOf(t, m.Dir, "plans")
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	table = openTable(t, s.Members[0], "plans")
	if err := table.Remove(inTime(t), "long"); err != nil {
		t.Fatal(err)
	}
	jobs(inTime(t), 10, 20)
	for _, m := range s.Members {
		m.Kill(t)
		s.Rejoin(m)
		synced[m.Name].cut(t, m.Dir, "plans")
	}
	if took := time.Since(begun); took > 100*time.Second { // the server makes a further snapshot after two minutes
		t.Skipf("this machine is too slow: the start and the writes took %s", took)
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	table = openTable(t, s.Members[0], "plans")
	jobs(inTime(t), 20, 30)
	if keys, err := table.Keys(journal.Starting(inTime(t))); err != nil || len(keys) > 0 {
		t.Errorf("the table has %q, %v", keys, err)
	}
}
