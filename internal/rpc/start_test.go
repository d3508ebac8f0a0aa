package rpc

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneSenderBeginsLittleAtOnce: the requests of one sender are started a few at a time,
// whatever others do; those that only wait release their turn, and all are started in the end.
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
			time.Sleep(beginTime) // in the bubble the clock advances when all goroutines wait
		}
		close(end)
		all.Wait()
		synctest.Wait()
		if len(b.of) > 0 {
			t.Errorf("%d senders are remembered that have nothing under way", len(b.of))
		}
	})
}

// TestLongRequestsAreBegunOneByOne: a long request counts for many short ones, and releases its
// turn when it only waits; requests that arrived after it start after it.
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
			time.Sleep(maxBegun * beginTime) // decoding it may take that long
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

// A long request starts at once when the previous one reports that it waits, as the request for
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
			r.Waits() // a second call has no effect
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
