package audit

import (
	"strconv"
	"sync"
	"time"
)

// Limits of the refusals that one principal can write into the audit log: the first ones in a
// minute have one entry each; for the rest there is one entry, the last, with their number.
const (
	floodTime     = time.Minute
	floodLimit    = 100
	maxPrincipals = 10_000
)

// flood counts refusals. Allowed decisions are never limited: they take effect, so each has an
// entry. It is not a logging.Throttle: suppressed refusals get an entry even if nobody connects
// again, and if there are more principals than it remembers, the rest share one burst, since
// invented names must not fill the audit log.
type flood struct {
	mu         sync.Mutex
	principals map[string]*burst
}

type burst struct {
	since time.Time
	count int
	more  int   // above the limit
	last  Entry // the last of them
}

func (f *flood) init() { f.principals = map[string]*burst{} }

// pass reports whether the refusal gets an entry of its own.
func (f *flood) pass(e Entry, now time.Time) bool {
	key := string(e.Kind) + " " + e.known()
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.principals[key]
	if b == nil {
		if len(f.principals) >= maxPrincipals {
			key = "" // principals beyond the limit share one burst
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

// known returns what is verified about a principal: the name in a login request may be anything.
func (w *Who) known() string {
	if w.UID != nil {
		return strconv.Itoa(*w.UID)
	}
	return w.User + " " + w.Minion
}

// take removes the bursts that are over and returns the entries for their suppressed refusals.
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

// Note writes an entry about something that takes no effect, without waiting: a refusal, or a
// message about the audit log. A failed write is logged. Note reports whether the refusal gets an
// entry of its own; if not, only its number is recorded, and the caller's log should omit it too.
func (l *Log) Note(e Entry) bool {
	if e.Verdict == Refused {
		l.refusals.Add(1)
	}
	if e.Verdict == Refused && !l.flood.pass(e, time.Now()) {
		return false
	}
	if err := l.write(e); err != nil {
		l.opts.Log.Error("audit entry not written", "kind", e.Kind, "user", e.User, "fun", e.Fun, "err", err)
	}
	return true
}

func (l *Log) tellRepeated(now time.Time) {
	for _, e := range l.flood.take(now) {
		l.opts.Log.Warn("repeated refusals", "kind", e.Kind, "user", e.User, "minion", e.Minion, "fun", e.Fun, "last", e.Reason, "repeated", e.Repeated)
		if err := l.write(e); err != nil {
			l.opts.Log.Error("audit entry not written", "kind", e.Kind, "user", e.User, "repeated", e.Repeated, "err", err)
		}
	}
}
