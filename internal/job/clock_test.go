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
