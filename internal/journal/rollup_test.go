package journal_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// forget removes what the server keeps beside its blocks, so that it has to read these whole.
func forget(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "index.db" {
			return os.Remove(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// removals are the ways in which an entry goes. Those that leave a mark lose it with the old ones.
var removals = map[string]func(t *testing.T, table *journal.Table, key string, revision uint64) error{
	"Remove": func(t *testing.T, table *journal.Table, key string, _ uint64) error {
		return table.Remove(inTime(t), key)
	},
	"RemoveAt": func(t *testing.T, table *journal.Table, key string, revision uint64) error {
		return table.RemoveAt(inTime(t), key, revision)
	},
	"Delete": func(t *testing.T, table *journal.Table, key string, _ uint64) error {
		return table.Delete(inTime(t), key)
	},
	"DeleteAt": func(t *testing.T, table *journal.Table, key string, revision uint64) error {
		return table.DeleteAt(inTime(t), key, revision)
	},
	"DeleteUntil": func(t *testing.T, table *journal.Table, key string, _ uint64) error {
		return table.DeleteUntil(inTime(t), key, time.Now().Add(-time.Minute))
	},
}

// change stores entries several times, in each way, and removes them, in each way.
func change(t *testing.T, nc *nats.Conn, table *journal.Table) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(table.Put(inTime(t), "stays", []byte("old")))
	must(table.Put(inTime(t), "stays", []byte("new")))
	for name, remove := range removals {
		key := name + " after Put"
		var revision uint64
		for n := range 3 {
			var err error
			revision, err = table.Store(inTime(t), key, fmt.Append(nil, n))
			must(err)
		}
		must(remove(t, table, key, revision))
		key = name + " after Update"
		revision, err := table.Create(inTime(t), key, []byte("0"))
		must(err)
		for n := range 3 {
			revision, err = table.Update(inTime(t), key, fmt.Append(nil, n+1), revision)
			must(err)
		}
		must(remove(t, table, key, revision))
	}
	must(table.Delete(inTime(t), "latest")) // the mark that is not removed
	keepMarks(t, journal.Marks{Table: table, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Every: 200 * time.Millisecond, Most: 1})
	bustest.Until(t, "the marks are removed", func() bool { return messagesOf(t, nc, table.Name()) <= 2 })
}

// TestWhatIsRemovedStaysSo: after a kill of a single master, when the server reads all blocks, an entry that was updated and then
// removed is not back with an older value.
func TestWhatIsRemovedStaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startStore(t, dir)
	table, err := open(t, b).Table(inTime(t), "facts")
	if err != nil {
		t.Fatal(err)
	}
	change(t, b.Conn(), table)
	left := killed(t, dir)
	forget(t, left)
	b = startStore(t, left)
	if table, err = open(t, b).Table(inTime(t), "facts"); err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	if err := table.Each(inTime(t), func(key string, value []byte) { have[key] = string(value) }); err != nil {
		t.Fatal(err)
	}
	if len(have) != 1 || have["stays"] != "new" {
		t.Errorf("the table has %v", have)
	}
	if n := messagesOf(t, b.Conn(), table.Name()); n > 2 {
		t.Errorf("the table has %d messages", n)
	}
}

// TestAKillBeforeTheRollup: the server was killed when it had stored an entry and not yet removed its predecessors. The newest one
// counts, and the next one replaces all.
func TestAKillBeforeTheRollup(t *testing.T) {
	t.Parallel()
	b := startStore(t, t.TempDir())
	table, err := open(t, b).Table(inTime(t), "facts")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "2", "3"} {
		if _, err := b.Conn().RequestWithContext(inTime(t), "$KV.facts.web1", []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if n := messagesOf(t, b.Conn(), table.Name()); n != 3 {
		t.Fatalf("there are %d messages, want 3", n)
	}
	e, err := table.Entry(inTime(t), "web1")
	got, bad := table.Get(inTime(t), "web1")
	if err != nil || bad != nil || string(e.Value) != "3" || string(got) != "3" {
		t.Errorf("the entry is %q, %v, %q, %v", e.Value, err, got, bad)
	}
	var all []string
	if err := table.Each(inTime(t), func(_ string, value []byte) { all = append(all, string(value)) }); err != nil || !slices.Equal(all, []string{"3"}) {
		t.Errorf("the entries are %q, %v", all, err)
	}
	if _, err := table.Update(inTime(t), "web1", []byte("4"), e.Revision); err != nil {
		t.Fatal(err)
	}
	if n := messagesOf(t, b.Conn(), table.Name()); n != 1 {
		t.Errorf("there are %d messages after the next entry, want 1", n)
	}
}
