package rpc

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneSenderBeginsLittleAtOnce: what one sender asks for is begun a few at a time,
// whatever others have, what only waits gives its place away, and all are begun.
func TestOneSenderBeginsLittleAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b begins
		var begun atomic.Int64
		var all sync.WaitGroup
		end := make(chan struct{})
		for range 5 * maxBegun {
			all.Add(1)
			b.add("minion:a", 100, func(func()) {
				begun.Add(1)
				<-end
				all.Done()
			})
		}
		other := make(chan struct{})
		b.add("minion:b", 100, func(func()) { close(other) })
		<-other
		synctest.Wait()
		if n := begun.Load(); n != maxBegun {
			t.Errorf("%d were begun at once, want %d", n, maxBegun)
		}
		for begun.Load() < 5*maxBegun {
			time.Sleep(beginTime) // of the bubble: the clock goes on when all wait
		}
		close(end)
		all.Wait()
		synctest.Wait()
		if len(b.of) > 0 {
			t.Errorf("%d senders are remembered that have nothing under way", len(b.of))
		}
	})
}

// TestLongRequestsAreBegunOneByOne: a long request takes the room of many short ones, and
// gives it away when it only waits; what came behind it begins behind it.
func TestLongRequestsAreBegunOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b begins
		var begun atomic.Int64
		end := make(chan struct{})
		wait := func(func()) {
			begun.Add(1)
			<-end
		}
		b.add("minion:a", 60<<20, wait)
		b.add("minion:a", 60<<20, wait)
		b.add("minion:a", 100, wait)
		for _, want := range []int64{1, 2, 3} {
			time.Sleep(maxBegun * beginTime) // to decode it may well take longer
			if n := begun.Load(); n != want {
				t.Errorf("%d are begun, want %d", n, want)
			}
			time.Sleep(longBegin - maxBegun*beginTime)
		}
		close(end)
		synctest.Wait()
		if len(b.of) > 0 {
			t.Errorf("%d senders are remembered that have nothing under way", len(b.of))
		}
	})
}

// A long request begins at once when the one before it reports that it waits, as the request for
// capacity does for the batch that follows it.
func TestAWaitingRequestReleasesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b begins
		var order []string
		end, begin := make(chan struct{}), time.Now()
		b.add("minion:a", 100, func(waits func()) {
			r := Request{waits: waits}
			order = append(order, "capacity")
			r.Waits()
			r.Waits() // again does nothing
			<-end
		})
		synctest.Wait()
		b.add("minion:a", 60<<20, func(func()) {
			order = append(order, "batch")
			close(end)
		})
		<-end
		if took := time.Since(begin); took > 0 || !slices.Equal(order, []string{"capacity", "batch"}) {
			t.Errorf("begun: %v, after %s", order, took)
		}
		synctest.Wait()
		if len(b.of) > 0 {
			t.Errorf("%d senders are remembered that have nothing under way", len(b.of))
		}
	})
}
