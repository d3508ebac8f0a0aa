package outbox

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

func given(l *lease) bool {
	select {
	case <-l.given:
		return true
	default:
		return false
	}
}

func TestCapacityIsGivenInOrder(t *testing.T) {
	r := newCapacity()
	half, rest, small, huge := r.ask(capacityBytes/2), r.ask(capacityBytes/2), r.ask(1), r.ask(100*capacityBytes)
	if !given(half) || !given(rest) || given(small) || given(huge) {
		t.Fatal("two halves are all there is")
	}
	r.giveBack(half)
	if !given(small) {
		t.Error("the next in the row gets nothing though there is capacity")
	}
	if given(huge) {
		t.Error("a large one begins beside others")
	}
	r.giveBack(small)
	late := r.ask(1)
	if given(late) {
		t.Error("a small one overtakes: the large one would wait for ever")
	}
	r.giveBack(rest)
	if !given(huge) || given(late) {
		t.Error("the largest has it all, alone")
	}
	r.giveBack(huge)
	r.giveBack(late)
	if r.free != capacityBytes || len(r.queue) > 0 {
		t.Errorf("in the end %d are free, want %d", r.free, capacityBytes)
	}
}

func TestCapacityIsReturnedWhenARequestIsCancelled(t *testing.T) {
	r := newCapacity()
	all := r.ask(capacityBytes)
	waiting, next := r.ask(5), r.ask(7)
	r.giveBack(waiting) // it is gone before its turn
	r.giveBack(all)
	if given(waiting) || !given(next) || r.free != capacityBytes-7 {
		t.Errorf("free are %d, want %d", r.free, capacityBytes-7)
	}
}

func TestCapacityIsUsedOnce(t *testing.T) {
	r := newCapacity()
	first, second := r.ask(1), r.ask(1)
	r.hold("web1", first)
	r.hold("web1", second) // it asks again: what it had is used
	select {
	case <-first.used:
	default:
		t.Error("the first lease stays")
	}
	r.stored("web1")
	r.stored("web1")
	r.stored("unknown")
	select {
	case <-second.used:
	default:
		t.Error("the second lease stays")
	}
}

// However many ask, never more than there is is given.
func TestCapacityIsNeverOverdrawn(t *testing.T) {
	r := newCapacity()
	var out, most atomic.Int64
	var wg sync.WaitGroup
	for n := range 64 {
		wg.Go(func() {
			id := salt.MinionID(rune('a' + n))
			for range 50 {
				l := r.ask(rand.Int64N(capacityBytes))
				<-l.given
				r.hold(id, l)
				now := out.Add(l.bytes)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				out.Add(-l.bytes)
				r.stored(id)
				r.giveBack(l)
			}
		})
	}
	wg.Wait()
	if most.Load() > capacityBytes || r.free != capacityBytes {
		t.Errorf("%d were out at a time, %d are left of %d", most.Load(), r.free, capacityBytes)
	}
}

// A minion that asks for all the capacity again and again, and sends nothing, delays another one
// by seconds at most.
func TestOneMinionCannotHoldAllCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCapacity()
		var all sync.WaitGroup
		hog := func() {
			l := r.askFor("evil", capacityBytes)
			defer r.giveBack(l)
			if r.await(t.Context(), "evil", l) == nil {
				r.hold("evil", l)
				r.keep(t.Context(), l)
			}
		}
		for range 100 {
			all.Go(hog)
		}
		synctest.Wait()
		begun := time.Now()
		l := r.askFor("web1", 1<<20)
		for range 100 {
			all.Go(hog)
		}
		if err := r.await(t.Context(), "web1", l); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 2*giveWay {
			t.Errorf("it waited for %s, want at most %s", took, 2*giveWay)
		}
		r.giveBack(l)
		all.Wait()
		if r.free != capacityBytes || len(r.queue)+len(r.asking) > 0 {
			t.Errorf("in the end %d are free, %d wait", r.free, len(r.queue))
		}
	})
}
