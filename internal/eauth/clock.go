package eauth

import (
	"sync"
	"time"
)

// clock tells a time that never goes back, so that nothing that has expired is
// alive again: when the system's clock is set back it goes on from where it
// stood, when that is set forward it follows.
type clock struct {
	mu    sync.Mutex
	wall  func() time.Time // nil is the system's
	shown time.Time        // what it showed last, without a monotonic part
	since time.Time        // when, with one
}

// atLeast makes the clock show t or later, for a time that was shown before a
// restart.
func (c *clock) atLeast(t time.Time) {
	c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.shown) {
		c.shown = t.Round(0)
	}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	wall := now.Round(0)
	if c.wall != nil {
		wall = c.wall()
	}
	if !c.since.IsZero() {
		if steady := c.shown.Add(now.Sub(c.since)); steady.After(wall) {
			wall = steady
		}
	}
	c.shown, c.since = wall, now
	return wall
}
