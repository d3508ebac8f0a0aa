package audit

import (
	"strconv"
	"sync"
	"time"
)

// Bounds of what one principal's refusals may fill the audit log with: the first in a
// minute are told one by one, of the others the last, with their number.
const (
	floodTime     = time.Minute
	floodLimit    = 100
	maxPrincipals = 10_000
)

// flood counts refusals. What is allowed is never counted: it takes effect, and
// has an entry. It is no logging.Throttle: what was left out has an entry of its own though
// nobody knocks again, and with more principals than are remembered the others share one
// burst, since an audit log must not be filled by whoever invents names.
type flood struct {
	mu         sync.Mutex
	principals map[string]*burst
}

type burst struct {
	since time.Time
	count int
	more  int   // beyond the limit
	last  Entry // of those
}

func (f *flood) init() { f.principals = map[string]*burst{} }

// pass says whether the refusal is told by itself.
func (f *flood) pass(e Entry, now time.Time) bool {
	key := string(e.Kind) + " " + e.known()
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.principals[key]
	if b == nil {
		if len(f.principals) >= maxPrincipals {
			key = "" // principals without number: they share one burst
			b = f.principals[key]
		}
		if b == nil {
			b = &burst{since: now}
			f.principals[key] = b
		}
	}
	if b.count++; b.count <= floodLimit {
		return true
	}
	b.more++
	b.last = e
	return false
}

// known is by what a principal is known for sure: who tries to log in may call
// themselves anything.
func (w *Who) known() string {
	if w.UID != nil {
		return strconv.Itoa(*w.UID)
	}
	return w.User + " " + w.Minion
}

// take removes the bursts that are over and returns what was not told of them.
func (f *flood) take(now time.Time) []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []Entry
	for key, b := range f.principals {
		if now.Sub(b.since) < floodTime {
			continue
		}
		delete(f.principals, key)
		if b.more > 0 {
			b.last.Repeated = b.more
			list = append(list, b.last)
		}
	}
	return list
}

// Note writes an entry about what takes no effect, without waiting: a refusal,
// or a word about the audit log. That it could not be written is told to the log. It
// returns whether the entry is one by itself, and not among those of which only the
// number is told: the caller's own log is to leave out the same ones.
func (l *Log) Note(e Entry) bool {
	if e.Verdict == Refused {
		l.refusals.Add(1)
	}
	if e.Verdict == Refused && !l.flood.pass(e, time.Now()) {
		return false
	}
	if _, err := l.Begin(e); err != nil {
		l.opts.Log.Error("audit entry not written", "kind", e.Kind, "user", e.User, "fun", e.Fun, "err", err)
	}
	return true
}

func (l *Log) tellRepeated(now time.Time) {
	for _, e := range l.flood.take(now) {
		l.opts.Log.Warn("refused again and again", "kind", e.Kind, "user", e.User, "minion", e.Minion, "fun", e.Fun, "last", e.Reason, "repeated", e.Repeated)
		if _, err := l.Begin(e); err != nil {
			l.opts.Log.Error("audit entry not written", "kind", e.Kind, "user", e.User, "repeated", e.Repeated, "err", err)
		}
	}
}
