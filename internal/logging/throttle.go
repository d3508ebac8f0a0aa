package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Throttle says whether something is told for the first time in a while, so that
// a peer that keeps knocking fills neither log nor journal. The zero value is ready;
// its methods may be called concurrently.
type Throttle struct {
	mu   sync.Mutex
	seen map[string]burst
}

// burst is how often something was to be told in the minute that began at since.
type burst struct {
	since time.Time
	count int
}

// The pause between two words on the same thing, and how many things are
// remembered: beyond that all are forgotten, which costs a few words more.
const (
	throttlePause = time.Minute
	maxThrottled  = 10_000
)

// First says whether what was not told within the last minute.
func (t *Throttle) First(what string, now time.Time) bool { return t.Few(what, now, 1) }

// Few says whether what was told less than most times within a minute.
func (t *Throttle) Few(what string, now time.Time, most int) bool {
	_, tell := t.Count(what, now, most)
	return tell
}

// Log writes a line unless most of what were written within the minute. The first of the next
// minute says how often it was repeated beyond those.
func (t *Throttle) Log(log *slog.Logger, level slog.Level, what string, most int, text string, args ...any) {
	if left, tell := t.Count(what, time.Now(), most); tell {
		log.Log(context.Background(), level, text, append(args, Repeated(left)...)...)
	}
}

// Repeated is the attribute of a line that stands for so many others, too.
func Repeated(left int) []any {
	if left == 0 {
		return nil
	}
	return []any{"repeated", left}
}

// Count is Few with how often what was left out in the minute before: that many times it
// was repeated beyond what was told.
func (t *Throttle) Count(what string, now time.Time, most int) (left int, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, known := t.seen[what]
	if !known && len(t.seen) >= maxThrottled {
		t.seen = nil
	}
	if !known || now.Sub(b.since) >= throttlePause {
		left = max(0, b.count-most)
		b = burst{since: now}
	}
	if t.seen == nil {
		t.seen = map[string]burst{}
	}
	b.count++
	t.seen[what] = b
	return left, b.count <= most
}
