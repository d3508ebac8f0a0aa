package job

import (
	"sync"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Clock generates job ids, each later than the one before, even if the system's clock stands
// still or goes back. The zero value is ready, for a single master.
//
// The members of a cluster cannot ask each other for every job. So each has a number, and uses
// only the microseconds whose remainder modulo Of is that number: ids of two members are never
// equal, however their clocks stand.
type Clock struct {
	Number, Of int // they are set before the first call of Next

	mu   sync.Mutex
	last time.Time
}

// Next returns a fresh id for about now.
func (c *Clock) Next(now time.Time) salt.JID {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = now.Truncate(time.Microsecond)
	step := int64(max(1, c.Of))
	us := now.UnixMicro()
	now = now.Add(time.Duration(int64(c.Number)%step-((us%step)+step)%step) * time.Microsecond)
	if !now.After(c.last) {
		now = c.last.Add(time.Duration(step) * time.Microsecond)
	}
	c.last = now
	return salt.NewJID(now)
}

// Steady is a clock without steps: a time that was set once, plus the time that has passed
// since. It counts for the expiry of jobs on both sides, so that setting a system's clock makes
// no job too late.
type Steady struct{ shown, since time.Time }

// NewSteady starts a clock that shows t now.
func NewSteady(t time.Time) Steady { return Steady{t.Round(0), time.Now()} }

// Now returns what the clock shows.
func (s Steady) Now() time.Time { return s.shown.Add(time.Since(s.since)) }
