package eauth

import (
	"sync"
	"time"
)

// clock returns a time that never goes back, so that nothing that has expired becomes valid again:
// if the system clock is set back, it continues from its last time; if that is set forward, it
// follows. Only goBack moves it back.
type clock struct {
	mu    sync.Mutex
	wall  func() time.Time // nil is the system clock
	shown time.Time        // the last returned time, without a monotonic part
	since time.Time        // when it was returned, with a monotonic part
}

// atLeast makes the clock return t or later, for a time that was returned before a restart.
func (c *clock) atLeast(t time.Time) {
	c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.shown) {
		c.shown = t.Round(0)
	}
}

// goBack sets the clock to t, whatever it has returned.
func (c *clock) goBack(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.since = t.Round(0), time.Now()
}

// system returns the time of the system clock.
func (c *clock) system() time.Time {
	if c.wall != nil {
		return c.wall()
	}
	return time.Now().Round(0)
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wall := time.Now(), c.system()
	if !c.since.IsZero() {
		if steady := c.shown.Add(now.Sub(c.since)); steady.After(wall) {
			wall = steady
		}
	}
	c.shown, c.since = wall, now
	return wall
}
