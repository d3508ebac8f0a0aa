package admission

import (
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/pki"
)

// maxByRules is how many decisions of rules about keys have a log line, an audit entry and an event of their own in a
// minute. Anybody can cause them, with new keys that a rule matches. The others are gathered.
const maxByRules = maxNewOfAnybody

// maxGathered is how many ids are listed of decisions that are gathered.
const maxGathered = 1000

// byRules are the decisions of rules of a minute. They are for one caller at a time.
type byRules struct {
	since time.Time
	n     int
	more  map[[2]string]*audit.Entry // beyond maxByRules, by act and rule
}

// own reports whether a decision is written by itself; if not, it is gathered.
func (b *byRules) own(name pki.Name, act, rule string, now time.Time) bool {
	if now.Sub(b.since) >= time.Minute && len(b.more) == 0 {
		b.since, b.n = now, 0
	}
	if b.n++; b.n <= maxByRules {
		return true
	}
	kind := [2]string{act, rule}
	e := b.more[kind]
	if e == nil {
		e = &audit.Entry{Kind: audit.Key, Verdict: audit.Allowed, Fun: "key." + act, Rule: rule}
		if b.more == nil {
			b.more = map[[2]string]*audit.Entry{}
		}
		b.more[kind] = e
	}
	if e.Count++; len(e.Minions) < maxGathered {
		e.Minions = append(e.Minions, name.ID)
	}
	return false
}

// take returns what was gathered when the minute is over, or at the end.
func (b *byRules) take(now time.Time, end bool) (list []audit.Entry) {
	if len(b.more) == 0 || now.Sub(b.since) < time.Minute && !end {
		return nil
	}
	for _, e := range b.more {
		list = append(list, *e)
	}
	*b = byRules{since: now}
	return list
}

// tellGathered writes what was gathered of decisions by rules.
func (a *Admission) tellGathered(end bool) {
	now := time.Now()
	for _, e := range append(a.byRules.take(now, end), a.byOthers.take(now, end)...) {
		a.Log.Warn("rules have decided about more keys than are written one by one", "act", e.Fun, "rule", e.Rule, "count", e.Count, "first", e.Minions[:min(len(e.Minions), fewIDs)])
		a.Decided.Tell(e, "", nil)
	}
}

// fewIDs is how many ids a line of the log has.
const fewIDs = 3
