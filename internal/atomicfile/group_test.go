package atomicfile

import (
	"errors"
	"sync"
	"testing"

	"github.com/brinebus/brine/test/deadline"
)

// Who comes while a sync runs is not served by it, and shares the next one with all others
// that wait.
func TestGroupSharesTheNextSync(t *testing.T) {
	const many = 50
	var g Group
	started, release := make(chan struct{}), make(chan struct{})
	syncs, failed := 0, errors.New("the disk is gone")
	sync1 := func() error {
		if syncs++; syncs == 1 {
			close(started)
			<-release
			return nil
		}
		return failed
	}
	first := make(chan error, 1)
	go func() { first <- g.Do(sync1) }()
	deadline.Receive(t, started, "started")
	results := make(chan error, many)
	var coming sync.WaitGroup
	for range many {
		coming.Go(func() { results <- g.Do(sync1) })
	}
	close(release)
	if err := deadline.Receive(t, first, "first"); err != nil {
		t.Errorf("the first one is told of the error of a later one: %v", err)
	}
	deadline.Call(t, coming.Wait, "coming")
	for range many {
		if err := deadline.Receive(t, results, "results"); !errors.Is(err, failed) {
			t.Errorf("one that came meanwhile was served by the sync that ran: %v", err)
		}
	}
	if syncs > many+1 || syncs < 2 {
		t.Errorf("%d syncs", syncs)
	}
}
