package job

import (
	"sync"
	"time"

	"brine/internal/salt"
)

// Clock hands out job ids: each later than the one before, also when the
// system's clock stands still or steps back. The zero value is ready.
type Clock struct {
	mu   sync.Mutex
	last time.Time
}

// Next returns a fresh id for about now.
func (c *Clock) Next(now time.Time) salt.JID {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = now.Truncate(time.Microsecond)
	if !now.After(c.last) {
		now = c.last.Add(time.Microsecond)
	}
	c.last = now
	return salt.NewJID(now)
}
