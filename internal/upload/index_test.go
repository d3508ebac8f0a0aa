package upload

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// addOne adds an entry about a file, or about one that was removed.
func (x *index) addOne(id salt.MinionID, path string, revision uint64, removed bool) *file {
	f := &file{entry: entry{Minion: id, Path: path, object: object{Name: "o"}}, revision: revision}
	if removed {
		f.object = object{}
	}
	x.add(f)
	return f
}

// TestWhatCannotBePlacedWaitsBehindTheNew: files that cannot be placed are tried at growing intervals, never
// before one that is new, and none of them keeps the others from being tried.
func TestWhatCannotBePlacedWaitsBehindTheNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		const bad = 3
		for n := range bad {
			x.addOne("evil", fmt.Sprint(n), uint64(n+1), false)
		}
		var tried []time.Duration
		began := time.Now()
		for time.Since(began) < time.Hour {
			for f := x.next(time.Now()); f != nil; f = x.next(time.Now()) {
				if f.Path == "0" {
					tried = append(tried, time.Since(began))
				}
				x.postpone(f, f.pauses.Next(placePause, longestPause))
				if upto := x.upTo(); upto != 0 {
					t.Fatalf("it follows up to %d", upto)
				}
			}
			at, some := x.due()
			if !some {
				t.Fatal("nothing is tried again")
			}
			time.Sleep(time.Until(at)) // of the synctest clock
		}
		want := []time.Duration{0, 15 * time.Second, 45 * time.Second, 105 * time.Second, 225 * time.Second, 465 * time.Second, 945 * time.Second, 1545 * time.Second, 2145 * time.Second, 2745 * time.Second, 3345 * time.Second}
		if !slices.Equal(tried, want) {
			t.Errorf("tried after %v, want %v", tried, want)
		}

		now := time.Now() // they are due again
		x.addOne("web1", "new", 9, false)
		var order []string
		for f := x.next(now); f != nil; f = x.next(now) {
			if order = append(order, f.Path); f.Minion == "evil" {
				x.postpone(f, f.pauses.Next(placePause, longestPause))
			} else {
				x.placedAt(f)
			}
		}
		if want := []string{"new", "0", "1", "2"}; !slices.Equal(order, want) {
			t.Errorf("the order is %v, want %v", order, want)
		}

		x.addOne("evil", "1", 10, false) // in place of the one that waits
		x.placedAt(x.next(now))
		if n, upto := len(x.placed("evil")), x.upTo(); n != 1 || upto != 0 {
			t.Errorf("%d are placed, it follows up to %d", n, upto)
		}
		x.addOne("web1", "other", 11, true)
		x.placedAt(x.next(now))
		if f := x.next(time.Now()); f != nil {
			t.Errorf("%s of %s is tried when a file of another minion was removed", f.Path, f.Minion)
		}
		x.addOne("evil", "0", 12, true)
		x.placedAt(x.next(now))
		if f := x.next(time.Now()); f == nil || f.Path != "2" {
			t.Errorf("when one was removed that may have been in the way: %v is tried", f)
		} else {
			x.placedAt(f)
		}
		if f, upto := x.next(time.Now().Add(time.Hour)), x.upTo(); f != nil || upto != 12 {
			t.Errorf("%v is tried, it follows up to %d", f, upto)
		}
	})
}

// TestAFullMinionIsLookedAfterSeldom: however often a minion asks for room, its files are not looked at each time.
func TestAFullMinionIsLookedAfterSeldom(t *testing.T) {
	f := &Files{looked: map[salt.MinionID]time.Time{}}
	at, looks := time.Now(), 0
	for n := range 1000 {
		if f.mayLook("evil", at.Add(time.Duration(n)*10*time.Millisecond)) {
			looks++
		}
	}
	if looks != 2 {
		t.Errorf("its files are looked at %d times in ten seconds, want 2", looks)
	}
	if !f.mayLook("web1", at) {
		t.Error("those of another one are not")
	}
}

// TestOfMinionsWithoutFilesNothingIsKept in memory.
func TestOfMinionsWithoutFilesNothingIsKept(t *testing.T) {
	f := &Files{looked: map[salt.MinionID]time.Time{}, whole: map[salt.MinionID]uint64{}, index: newIndex()}
	now := time.Now()
	f.index.addOne("web1", "a", 1, false)
	for n := range 100 {
		id := salt.MinionID(fmt.Sprint("gone", n))
		f.index.addOne(id, "a", uint64(2*n+2), false)
		f.mayLook(id, now.Add(-soon))
		f.setWhole(id, 1)
		f.index.addOne(id, "a", uint64(2*n+3), true)
	}
	f.setWhole("web1", 1)
	f.mayLook("web1", now)
	prune(f, now)
	if len(f.whole) != 1 || len(f.looked) != 1 || f.mayLook("web1", now) {
		t.Errorf("%d counted as whole, and %d looks are known, want those of web1", len(f.whole), len(f.looked))
	}
}
