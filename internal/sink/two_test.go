package sink

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// breaking is a target whose next attempt to write fails, when that is set.
type breaking struct {
	target
	next func() error // called once
}

func (b *breaking) open(ctx context.Context, log *slog.Logger) (destination, error) {
	d, err := b.target.open(ctx, log)
	return &breakable{d, b}, err
}

type breakable struct {
	destination
	of *breaking
}

func (b *breakable) write(ctx context.Context, events []Event) error {
	if next := b.of.next; next != nil {
		b.of.next = nil
		return next()
	}
	return b.destination.write(ctx, events)
}

// startWorker runs one rule until stop is called.
func startWorker(t *testing.T, j *journal, r Rule) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{rule: r, source: j.listen(r), log: testLog(t)}
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := deadline.Receive(t, ended, "the end of the worker"); !errors.Is(err, context.Canceled) {
			t.Errorf("the worker ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// TestTwoSinksWriteOneFile: the file is rotated with each batch, so it cannot tell what is in it
// already. The first sink has read all events when its attempt to write fails; the second one writes
// them meanwhile.
func TestTwoSinksWriteOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	rule := configure(t, "r: {batch: 20, wait: 0s, to: {file: {path: "+path+", rotate_size: 1KiB}}}").Rules[0]
	j := newJournal()
	waits := func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.waiting == 1
	}
	j.fire(t, 60)
	first, writes, secondWaits := rule, make(chan struct{}), make(chan struct{})
	first.to = &breaking{rule.to, func() error {
		close(writes)
		<-secondWaits
		return errors.New("away")
	}}
	release := sync.OnceFunc(func() { close(secondWaits) })
	defer release()
	startWorker(t, j, first)
	deadline.Receive(t, writes, "the first batch")
	stop := startWorker(t, j, rule)
	bustest.Until(t, "the second sink waits", waits)
	release()
	j.waitFor(t, "r", 60)
	bustest.Until(t, "the first sink waits", waits)
	stop()
	j.fire(t, 20)
	j.waitFor(t, "r", 80)
	expectPlaces(t, allPlaces(t, path), 80)
}

// TestASinkSeesTheFileOfAnother: the second sink has written a batch that it could not confirm, and
// the first one, which has its file open, reads that batch again.
func TestASinkSeesTheFileOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	rule := configure(t, "r: {batch: 20, wait: 0s, to: {file: {path: "+path+"}}}").Rules[0]
	j := newJournal()
	w := &worker{rule: rule, source: j.listen(rule), log: testLog(t)}
	defer w.source.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	serve := func() {
		t.Helper()
		b, err := w.gather(ctx)
		if err == nil {
			err = w.process(ctx, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.insist(ctx, ctx, new(batch), w.open); err != nil {
		t.Fatal(err)
	}
	defer w.closeDest()
	j.fire(t, 20)
	serve()
	w.source.Pause()
	other, err := rule.to.open(ctx, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	j.fire(t, 20)
	var events []Event
	for _, line := range j.lines[20:] {
		e, err := parseEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if err := other.write(ctx, events); err != nil {
		t.Fatal(err)
	}
	serve()
	expectPlaces(t, allPlaces(t, path), 40)
}
