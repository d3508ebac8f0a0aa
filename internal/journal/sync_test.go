package journal_test

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/deadline"
)

// slowDisk is the store of a broker whose syncs wait until the test releases them.
type slowDisk struct {
	journal.Store
	syncs atomic.Int64
	begun chan struct{}
	goOn  chan error
}

func (s *slowDisk) Waits() bool { return true }

func (s *slowDisk) Sync(string) error {
	s.syncs.Add(1)
	s.begun <- struct{}{}
	return <-s.goOn
}

// With journal_sync: always no event is acknowledged or sent to readers before it is on the
// disk; all events that arrive during a sync share the next one.
func TestOneSyncForAllThatArrivedMeanwhile(t *testing.T) {
	t.Parallel()
	b := startStore(t, t.TempDir())
	disk := &slowDisk{Store: b.Store(), begun: make(chan struct{}), goOn: make(chan error)}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: disk})
	if err != nil {
		t.Fatal(err)
	}
	var shown atomic.Int64
	_, stop := j.Tap(func(l []journal.Text) { shown.Add(int64(len(l))) })
	defer stop()
	const many = 100
	var reported atomic.Int64
	var all sync.WaitGroup
	store := func() {
		all.Go(func() {
			if _, err := j.Append(t.Context(), filled("mytag", "x", 10), ""); err != nil {
				t.Error(err)
			}
			reported.Add(1)
		})
	}
	store()
	deadline.Receive(t, disk.begun, "begun")
	for range many - 1 {
		store()
	}
	for { // until the server has all of them
		if last, err := j.Last(t.Context()); err != nil {
			t.Fatal(err)
		} else if last == many {
			break
		}
	}
	if reported.Load() > 0 || shown.Load() > 0 {
		t.Errorf("%d are told, %d are shown, and nothing is on the disk", reported.Load(), shown.Load())
	}
	disk.goOn <- nil
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for waiting := true; waiting; {
		select {
		case <-disk.begun:
			disk.goOn <- nil
		case <-done:
			waiting = false
		}
	}
	if n := disk.syncs.Load(); n > many/4 || shown.Load() != many {
		t.Errorf("%d events took %d syncs, %d are shown", many, n, shown.Load())
	}
}

// An event whose sync fails is not acknowledged.
func TestAFailedSyncIsReported(t *testing.T) {
	t.Parallel()
	b := startStore(t, t.TempDir())
	disk := &slowDisk{Store: b.Store(), begun: make(chan struct{}), goOn: make(chan error)}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: disk})
	if err != nil {
		t.Fatal(err)
	}
	p, err := j.Begin(filled("mytag", "x", 10), "web1/a")
	if err != nil {
		t.Fatal(err)
	}
	deadline.Receive(t, disk.begun, "begun")
	disk.goOn <- errors.New("input/output error")
	if _, err := p.Wait(t.Context()); !errors.Is(err, journal.ErrStore) {
		t.Errorf("told is %v", err)
	}
}

// TestARepetitionIsAcknowledgedWhenItIsOnTheDisk: that the store shows the event does not mean that.
func TestARepetitionIsAcknowledgedWhenItIsOnTheDisk(t *testing.T) {
	t.Parallel()
	b := startStore(t, t.TempDir())
	disk := &slowDisk{Store: b.Store(), begun: make(chan struct{}), goOn: make(chan error)}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: disk})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ sync, want error }{
		{errors.New("input/output error"), journal.ErrStore},
		{errors.New("input/output error"), journal.ErrStore},
		{nil, nil},
	} {
		told := make(chan error, 1)
		go func() {
			_, err := j.Append(t.Context(), filled("mytag", "x", 10), "web1/a")
			told <- err
		}()
		select {
		case <-disk.begun:
			disk.goOn <- row.sync
		case err := <-told:
			t.Fatalf("before a sync the sender is told %v", err)
		}
		if err := deadline.Receive(t, told, "an answer"); !errors.Is(err, row.want) {
			t.Errorf("the sync ends with %v, the sender is told %v", row.sync, err)
		}
	}
	if last, err := j.Last(t.Context()); err != nil || last != 1 {
		t.Errorf("the last event is %d, %v: it is stored more than once", last, err)
	}
}

// With the real store, over many blocks and a purge of them: Flush and a synced append are
// right about the newest block.
func TestSyncOverBlocks(t *testing.T) {
	t.Parallel()
	o := storeOptions(t.TempDir(), quiet())
	o.Sync = broker.SyncAlways
	b, err := broker.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: b.Store()})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		fill(t, j, 10_000) // a block has 8 MiB
		last, err := j.Last(t.Context())
		if err == nil {
			_, err = j.Purger().PurgeBefore(t.Context(), last)
		}
		if err != nil {
			t.Fatal(err)
		}
		appendNamed(t, j, "")
	}
	if err := b.Store().Err(); err != nil {
		t.Error(err)
	}
	table, err := j.Table(t.Context(), "mytable")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := table.Keep(t.Context(), "key", []byte("value")); err != nil {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
