package master

import (
	"sync"
	"time"
)

// throttle says whether something is told for the first time in a while, so that
// a peer that keeps knocking fills neither log nor journal.
type throttle struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// The pause between two words on the same thing, and how many things are
// remembered: beyond that all are forgotten, which costs a few words more.
const (
	toldPause = time.Minute
	maxTold   = 10_000
)

func (t *throttle) first(what string, now time.Time) bool {
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
