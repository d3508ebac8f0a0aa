package accord

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestTheTableOfADirectory: each directory gets its own table again; one that has none gets an empty one, and
// without that the one that was changed longest ago.
func TestTheTableOfADirectory(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{Name: "test", StoreDir: t.TempDir(), Admit: broker.Nobody, Log: bustest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	var tables []Table
	for _, name := range []string{"one", "two", "three"} {
		table, err := j.OwnTable(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	of := func(dir string) Table {
		t.Helper()
		table, err := Of(t.Context(), dir, tables)
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	var dirs []string
	for n, at := range []int64{30, 10, 20} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "minions"), 0o700); err != nil {
			t.Fatal(err)
		}
		table := of(dir)
		if table != tables[n] {
			t.Errorf("directory %d has not got the first empty table", n)
		}
		d, err := openDirectory(filepath.Join(dir, directoryFile), nil, table)
		if err != nil {
			t.Fatal(err)
		}
		value, err := json.Marshal(agreement{Act: Accept, At: at})
		if err == nil {
			err = table.Keep(t.Context(), "a key", value)
		}
		if err == nil {
			err = d.renew(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	for n, dir := range dirs {
		if of(dir) != tables[n] {
			t.Errorf("directory %d has not got its table again", n)
		}
	}
	if of(t.TempDir()) != tables[1] {
		t.Error("a fourth directory has not got the table that was changed longest ago")
	}
}
