package journal_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestOthersFollowUnderLoad: while all members store messages of no event in a journal, and others end its terms, its member
// stores each event once, in order.
func TestOthersFollowUnderLoad(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	l := startLoad(t, j)
	l.grows()
	var running sync.WaitGroup
	var stop atomic.Bool
	var followed atomic.Int64
	follow := func(one func(context.Context) error) {
		running.Go(func() {
			for !stop.Load() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if one(ctx) == nil { // it fails where something else comes first
					followed.Add(1)
				}
				cancel()
			}
		})
	}
	follow(j.Follow)
	for _, m := range s.Members[1:] {
		other := openMember(t, m)
		follow(func(ctx context.Context) error { return other.FollowPeer(ctx, "m1") })
	}
	bustest.Until(t, "messages of no event are stored", func() bool { return followed.Load() > 20 })
	l.grows()
	endTerms(t, s, j, 6)
	l.grows()
	stop.Store(true)
	running.Wait()
	l.check(j)
	t.Logf("%d messages of no event", followed.Load())
}

// TestNothingIsMissedThatWasNoEvent: of a journal in which there have been only messages of no event since its newest event, nothing is missed
// by who has read that, whoever has stored them and however many are removed. No reader sees them.
func TestNothingIsMissedThatWasNoEvent(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	hour := func(o *journal.Options) { o.MaxAge = time.Hour }
	j, other := openMember(t, s.Members[0], hour), openMember(t, s.Members[1], hour)
	event, err := j.Append(inTime(t), filled("event", "x", 10), "web1/1")
	if err != nil {
		t.Fatal(err)
	}
	follow := func(one func(context.Context) error) { // a mark may get no answer, as in an election
		t.Helper()
		bustest.Until(t, "a message of no event is stored", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return one(ctx) == nil
		})
	}
	byOther := func(ctx context.Context) error { return other.FollowPeer(ctx, "m1") }
	for _, one := range []func(context.Context) error{j.Follow, byOther, byOther, j.Follow, j.Follow, byOther, byOther, j.Follow} {
		follow(one)
	}
	j.Close()
	j = openMember(t, s.Members[0], hour) // a start stores a mark
	follow(j.Follow)
	if list := readAll(t, j, journal.Query{}); len(list) != 1 || list[0].Seq != event {
		t.Errorf("a reader gets %v", list)
	}
	p := peer(t, s.Members[1], "m1")
	for before := event + 1; before < event+11; before++ {
		if _, err := j.Purger().PurgeBefore(inTime(t), before); err != nil {
			t.Fatal(err)
		}
		own, err := j.Extent(inTime(t))
		there, bad := p.Extent(inTime(t))
		if err != nil || bad != nil {
			t.Fatal(err, bad)
		}
		if own.First != event+1 || there.First != event+1 || own.Count == 0 || own.Last < event+10 {
			t.Errorf("after what is before %d was removed, the journal has %+v, at another member %+v", before, own, there)
		}
	}
	if _, err := j.Append(inTime(t), filled("event", "x", 10), "web1/2"); err != nil {
		t.Error(err)
	}
}
