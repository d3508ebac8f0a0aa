package journal_test

import (
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/journal"
)

func storeEach(t *testing.T, j *journal.Journal, batches ...journal.Batch) {
	t.Helper()
	p, err := j.BeginEach(batches)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Batches with several names are stored with one acknowledgement for all. Each keeps its own
// name: a repetition, alone or with others, in this process or the next, is not stored.
func TestBatchesOfManyNames(t *testing.T) {
	dir := t.TempDir()
	b := startStore(t, dir)
	j := open(t, b)
	batch := func(name string, n int) journal.Batch { return numbered(name, n, func(int) {}) }
	storeEach(t, j, batch("web1/a", 1), batch("web2/a", 3), batch("web1/a", 1), batch("", 1), batch("web3/a", 1))
	want := slices.Concat(batchTags("web1/a", 1), batchTags("web2/a", 3), batchTags("", 1), batchTags("web3/a", 1))
	wantTags(t, j, want...)
	again := func(j *journal.Journal) {
		t.Helper()
		storeEach(t, j, batch("web1/a", 1), batch("web2/a", 3), batch("web3/a", 1))
		mustStore(t, j, batch("web2/a", 3))
		wantTags(t, j, want...)
	}
	again(j)
	storeEach(t, j, batch("web2/a", 3), batch("web4/a", 1), batch("web1/a", 1))
	want = append(want, batchTags("web4/a", 1)...)
	again(j)
	b.Stop()
	again(open(t, startStore(t, dir)))
}

// A caller that repeats a batch while it is being stored waits until it is stored.
func TestBatchesUnderWay(t *testing.T) {
	j := open(t, startStore(t, t.TempDir()))
	batches := func() []journal.Batch {
		return []journal.Batch{numbered("web1/a", 1, func(int) {}), numbered("web2/a", 1, func(int) {})}
	}
	var all []*journal.Pending
	for range 100 {
		p, err := j.BeginEach(batches())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for _, p := range slices.Backward(all) {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if got := len(tags(t, j)); got != 2 {
			t.Fatalf("%d events are stored when the word comes, want 2", got)
		}
	}
}
