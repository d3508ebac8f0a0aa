package backup_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestWhatIsRemovedStaysSoAfterARepair: the last member of a cluster was killed, and the server that opens its store
// alone has only the blocks of messages: neither what it keeps beside them, nor the Raft groups. No entry is back that
// was replaced, a few times or often, and then removed, before the last stop in good order or after it.
func TestWhatIsRemovedStaysSoAfterARepair(t *testing.T) {
	t.Parallel()
	s, journals := startMembers(t, 10)
	table := func() *journal.Table {
		t.Helper()
		facts, err := journals[1].Table(inTime(t), "facts")
		if err != nil {
			t.Fatal(err)
		}
		return facts
	}
	facts := table()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	revisions := map[string]uint64{}
	replace := func(prefix string) {
		t.Helper()
		for key, times := range map[string]int{"few": 3, "many": 300, "deleted": 40} {
			for n := range times {
				revision, err := facts.Update(inTime(t), prefix+key, fmt.Append(nil, prefix, n), revisions[prefix+key])
				must(err)
				revisions[prefix+key] = revision
			}
		}
		for n := range 40 {
			must(facts.Put(inTime(t), prefix+"put", fmt.Append(nil, n)))
		}
	}
	remove := func(prefix string) {
		t.Helper()
		must(facts.Remove(inTime(t), prefix+"put"))
		must(facts.Remove(inTime(t), prefix+"few"))
		must(facts.RemoveAt(inTime(t), prefix+"many", revisions[prefix+"many"]))
		must(facts.Delete(inTime(t), prefix+"deleted"))
		mark, err := facts.Entry(inTime(t), prefix+"deleted")
		must(err)
		must(facts.RemoveAt(inTime(t), prefix+"deleted", mark.Revision))
	}
	replace("before/")
	replace("both/")
	remove("before/")
	must(facts.Put(inTime(t), "stays", []byte("old")))
	for i, m := range s.Members {
		journals[i].Close()
		m.Stop()
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	for i, m := range s.Members {
		journals[i] = open(t, m)
	}
	facts = table()
	replace("both/")
	replace("after/")
	remove("both/")
	remove("after/")
	must(facts.Put(inTime(t), "stays", []byte("new")))

	survivor := s.Members[2]
	bustest.Until(t, "the copy of "+survivor.Name+" is whole", func() bool { return wholeOf(t, survivor, "KV_facts") })
	survivor.Kill(t)
	for _, m := range s.Members[:2] {
		m.Stop()
	}
	cache := t.TempDir()
	cluster, own := backup.StoreDir(cache, true), backup.StoreDir(cache, false)
	must(os.Rename(survivor.Dir, cluster))
	must(filepath.WalkDir(cluster, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "index.db" {
			return os.Remove(path)
		}
		return err
	}))
	_, err := backup.Request{CacheDir: cache, Source: cluster, From: survivor.Name, Version: "1", Log: bustest.Log(t)}.Carry(inTime(t))
	must(err)
	b := openStore(t, own)
	j, err := journal.Open(inTime(t), b.Conn(), journal.Options{Store: b.Store(), Reserve: b.Reserve})
	must(err)
	t.Cleanup(j.Close)
	alone, err := j.Table(inTime(t), "facts")
	must(err)
	got := map[string]string{}
	must(alone.Each(inTime(t), func(key string, value []byte) { got[key] = string(value) }))
	if len(got) != 1 || got["stays"] != "new" {
		t.Errorf("after the repair there are %q", slices.Sorted(maps.Keys(got)))
	}
}
