package journal_test

import (
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/journal"
)

func storeEach(t *testing.T, j *journal.Journal, lots ...journal.Lot) {
	t.Helper()
	p, err := j.BeginEach(lots)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Lots of several names are stored with one word for all. Each keeps its own name: what
// of them comes again, alone or with others, in this process or the next, is not stored.
func TestLotsOfManyNames(t *testing.T) {
	dir := t.TempDir()
	b := startStore(t, dir)
	j := open(t, b)
	lot := func(name string, n int) journal.Lot { return numbered(name, n, func(int) {}) }
	storeEach(t, j, lot("web1/a", 1), lot("web2/a", 3), lot("web1/a", 1), lot("", 1), lot("web3/a", 1))
	want := slices.Concat(lotTags("web1/a", 1), lotTags("web2/a", 3), lotTags("", 1), lotTags("web3/a", 1))
	wantTags(t, j, want...)
	again := func(j *journal.Journal) {
		t.Helper()
		storeEach(t, j, lot("web1/a", 1), lot("web2/a", 3), lot("web3/a", 1))
		mustStore(t, j, lot("web2/a", 3))
		wantTags(t, j, want...)
	}
	again(j)
	storeEach(t, j, lot("web2/a", 3), lot("web4/a", 1), lot("web1/a", 1))
	want = append(want, lotTags("web4/a", 1)...)
	again(j)
	b.Stop()
	again(open(t, startStore(t, dir)))
}

// Who asks for the same again while it is being stored is told when it is.
func TestLotsUnderWay(t *testing.T) {
	j := open(t, startStore(t, t.TempDir()))
	lots := func() []journal.Lot {
		return []journal.Lot{numbered("web1/a", 1, func(int) {}), numbered("web2/a", 1, func(int) {})}
	}
	var all []*journal.Pending
	for range 100 {
		p, err := j.BeginEach(lots())
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
