package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Throttle limits how often something is logged, so that a peer that repeats it fills neither log
// nor journal. The zero value is ready; its methods may be called concurrently.
type Throttle struct {
	mu   sync.Mutex
	seen map[string]burst // what happened lately
	old  map[string]burst // what was seen before that, and not since
}

// burst counts how often something happened in the minute that began at since.
type burst struct {
	since time.Time
	count int
}

// The pause between two messages about the same thing, and how many things are remembered: beyond
// that those are forgotten that did not happen for the longest time, which only costs a few more messages. What
// happens all the time, such as anything at all from one host, is not forgotten however many things there are.
const (
	throttlePause = time.Minute
	maxThrottled  = 10_000
)

// First reports whether what was not logged within the last minute.
func (t *Throttle) First(what string, now time.Time) bool { return t.Few(what, now, 1) }

// Few reports whether what was logged less than most times within a minute.
func (t *Throttle) Few(what string, now time.Time, most int) bool {
	_, tell := t.Count(what, now, most)
	return tell
}

// Log writes a line unless most lines about what were written within the minute. The first line of
// the next minute says how often it was repeated beyond those.
func (t *Throttle) Log(log *slog.Logger, level slog.Level, what string, most int, text string, args ...any) {
	if left, tell := t.Count(what, time.Now(), most); tell {
		log.Log(context.Background(), level, text, append(args, Repeated(left)...)...)
	}
}

// LogMarked is Log, and the last line that is written within the minute says that further ones are only counted: for
// what somebody watches until it ends.
func (t *Throttle) LogMarked(log *slog.Logger, level slog.Level, what string, most int, text string, args ...any) {
	left, n := t.count(what, time.Now(), most)
	if n > most {
		return
	}
	if args = append(args, Repeated(left)...); n == most {
		args = append(args, "more", "only counted within this minute")
	}
	log.Log(context.Background(), level, text, args...)
}

// Repeated returns the attribute of a line that also stands for this many others.
func Repeated(left int) []any {
	if left == 0 {
		return nil
	}
	return []any{"repeated", left}
}

// Count is Few, and also returns how often what was suppressed in the minute before.
func (t *Throttle) Count(what string, now time.Time, most int) (left int, tell bool) {
	left, n := t.count(what, now, most)
	return left, n <= most
}

// count counts one more, and returns how many there are in this minute.
func (t *Throttle) count(what string, now time.Time, most int) (left, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, known := t.take(what)
	if !known || now.Sub(b.since) >= throttlePause {
		left = max(0, b.count-most)
		b = burst{since: now}
	}
	b.count++
	t.put(what, b)
	return left, b.count
}

// Undo takes one back that was counted.
func (t *Throttle) Undo(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, known := t.take(what)
	if known && b.count > 0 {
		b.count--
	}
	if known {
		t.put(what, b)
	}
}

// take removes what is remembered about a thing. The caller holds mu, as for put.
func (t *Throttle) take(what string) (b burst, known bool) {
	if b, known = t.seen[what]; known {
		delete(t.seen, what)
		return b, true
	}
	b, known = t.old[what]
	delete(t.old, what)
	return b, known
}

// put remembers it as the latest thing.
func (t *Throttle) put(what string, b burst) {
	if t.seen == nil {
		t.seen = map[string]burst{}
	}
	if t.seen[what] = b; len(t.seen) >= maxThrottled/2 {
		t.seen, t.old = nil, t.seen
	}
}
