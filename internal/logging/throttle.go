package logging

import (
	"sync"
	"time"
)

// Throttle says whether something is told for the first time in a while, so that
// a peer that keeps knocking fills neither log nor journal. The zero value is ready;
// its method may be called concurrently.
type Throttle struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// The pause between two words on the same thing, and how many things are
// remembered: beyond that all are forgotten, which costs a few words more.
const (
	toldPause = time.Minute
	maxTold   = 10_000
)

// First says whether what was not told within the last minute.
func (t *Throttle) First(what string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.last[what]; ok && now.Sub(last) < toldPause {
		return false
	}
	if t.last == nil || len(t.last) >= maxTold {
		t.last = map[string]time.Time{}
	}
	t.last[what] = now
	return true
}
