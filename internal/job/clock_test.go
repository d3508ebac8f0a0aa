package job

import (
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

func TestClockNeverRepeats(t *testing.T) {
	var c Clock
	last := salt.JID("")
	for i, now := range []time.Time{
		noon, noon, noon.Add(time.Nanosecond), noon.Add(-time.Hour), noon.Add(time.Second), noon.Add(-time.Second), noon.Add(time.Second),
		noon.Add(24 * time.Hour), noon, noon.In(time.FixedZone("x", -11*3600)), {}, noon.Add(48 * time.Hour),
	} {
		jid := c.Next(now)
		if _, err := salt.ParseJID(string(jid)); err != nil || jid <= last {
			t.Errorf("step %d: %s after %s, %v", i, jid, last, err)
		}
		last = jid
	}
	if want := salt.NewJID(noon.Add(48 * time.Hour)); last != want {
		t.Errorf("the clock does not catch up: %s, want %s", last, want)
	}
}

func TestClockIsSharedSafely(t *testing.T) {
	var c Clock
	var mu sync.Mutex
	seen := map[salt.JID]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				jid := c.Next(noon)
				mu.Lock()
				if seen[jid] {
					t.Errorf("%s twice", jid)
				}
				seen[jid] = true
				mu.Unlock()
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
}

// TestMembersNeverChooseTheSameID: whatever their clocks show, also far from each other and
// standing still.
func TestMembersNeverChooseTheSameID(t *testing.T) {
	const members = 5
	seen := map[salt.JID]int{}
	var clocks [members]Clock
	var last [members]salt.JID
	for i := range clocks {
		clocks[i].Number, clocks[i].Of = i, members
	}
	for round := range 2000 {
		for i := range clocks {
			now := noon.Add(time.Duration(round*(i+1)%7) * 300 * time.Nanosecond)
			if round > 1000 {
				now = noon.Add(time.Duration(round) * time.Second)
			}
			jid := clocks[i].Next(now)
			if other, taken := seen[jid]; taken {
				t.Fatalf("members %d and %d both choose %s", other, i, jid)
			}
			if _, err := salt.ParseJID(string(jid)); err != nil || jid <= last[i] {
				t.Fatalf("member %d chooses %s after %s: %v", i, jid, last[i], err)
			}
			seen[jid], last[i] = i, jid
		}
	}
	for i := range clocks { // no id is far from its time
		now := noon.Add(3000 * time.Second)
		if at, err := clocks[i].Next(now).Time(); err != nil || at.Sub(now).Abs() > members*time.Microsecond {
			t.Errorf("member %d: an id of %v at %v, %v", i, at, now, err)
		}
	}
}
