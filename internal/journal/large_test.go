//go:build !race

// What takes much of the processor with the race detector, and shows it nothing that other tests do not.

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/deadline"
)

// TestReadersThatWaitHoldLittle: readers of one principal whose callers wait hold a bounded
// part of the journal in memory together, in every way of reading, and all read to the end once
// the callers go on. Meanwhile another principal can read.
func TestReadersThatWaitHoldLittle(t *testing.T) {
	const readers, events, size = 40, 60, 200 << 10
	j := open(t, startStore(t, t.TempDir()))
	for range events {
		if _, err := j.Append(t.Context(), filled("nobody/x", "x", size), ""); err != nil {
			t.Fatal(err)
		}
	}
	before := inUse()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // half a gigabyte is read; longer means that it hangs
	defer cancel()
	goOn := make(chan struct{})
	var wait, ended sync.WaitGroup
	for n := range readers {
		r := j.For("user:1", nil)
		seen := 0
		wait.Add(1)
		f := func(journal.Text) error {
			if seen++; seen == 1 {
				wait.Done()
			}
			select {
			case <-goOn:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if seen == events {
				return errSeen
			}
			return nil
		}
		ended.Go(func() {
			var err error
			if n%2 == 0 {
				err = r.Replay(ctx, 1, events, f)
			} else {
				err = r.Follow(ctx, 1, f)
			}
			if !errors.Is(err, errSeen) {
				t.Errorf("reader %d saw %d events: %v", n, seen, err)
			}
		})
	}
	deadline.Call(t, wait.Wait, "wait")
	if n := len(replayed(t, j, 1, events)); n != events {
		t.Errorf("somebody else reads %d events, want %d", n, events)
	}
	if held := inUse() - before; held > 64<<20 {
		t.Errorf("%d readers that wait hold %d MiB", readers, held>>20)
	}
	close(goOn)
	deadline.Call(t, ended.Wait, "ended")
}

// TestEachOfALargeTable: a table that is not kept in memory is read as well.
func TestEachOfALargeTable(t *testing.T) {
	t.Parallel()
	table := openTables(t, startMembers(t), "facts")[0]
	const entries = 66 // of 1 MB each
	value := make([]byte, 1<<20-1024)
	for n := range entries + 1 {
		value[0] = byte(n)
		if err := table.Put(inTime(t), fmt.Sprintf("k%d", n), value); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Delete(inTime(t), fmt.Sprintf("k%d", entries)); err != nil {
		t.Fatal(err)
	}
	next := 0
	err := table.Each(inTime(t), func(key string, value []byte) {
		if key != fmt.Sprintf("k%d", next) || value[0] != byte(next) {
			t.Errorf("entry %d is %s with %d", next, key, value[0])
		}
		next++
	})
	if err != nil || next != entries {
		t.Errorf("%d entries, want %d: %v", next, entries, err)
	}
}

var errSeen = errors.New("all were seen")

// inUse is how many bytes of the heap are reachable.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
