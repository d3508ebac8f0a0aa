package eventbus

import (
	"sync"
	"time"

	"github.com/brinebus/brine/internal/rpc"
)

// Limits of what the patterns of listeners may cost, where they use backtracking: one tag takes
// up to a quarter of a second, and a listener checks every event. So each listener, and all
// listeners of one principal together, have a budget of time.
const (
	effortOfListener  = time.Second
	effortOfPrincipal = 2 * time.Second
	effortRefill      = 20                   // one second is refilled in that many seconds
	effortFree        = 2 * time.Millisecond // a shorter match is not counted
)

// effort is a budget of time. The zero value is full.
type effort struct {
	spent time.Duration
	at    time.Time
}

// spend takes d from the budget, and reports whether it was enough.
func (e *effort) spend(d, limit time.Duration, now time.Time) bool {
	e.spent = max(0, e.spent-now.Sub(e.at)/effortRefill) + d
	e.at = now
	return e.spent <= limit
}

// efforts are the budgets of principals.
type efforts struct {
	mu sync.Mutex
	of map[string]*effort
}

// spend takes d from the budget of a principal. Full budgets are forgotten.
func (e *efforts) spend(who string, d time.Duration, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, one := range e.of {
		if now.Sub(one.at)/effortRefill >= one.spent {
			delete(e.of, name)
		}
	}
	one := e.of[who]
	if one == nil {
		one = &effort{at: now}
		if e.of == nil {
			e.of = map[string]*effort{}
		}
		e.of[who] = one
	}
	return one.spend(d, effortOfPrincipal, now)
}

// matches compares a tag with the patterns of the listener, within its budget. Patterns without
// backtracking take a time that the tag's length bounds.
func (l *listener) matches(tag string) (bool, error) {
	if !l.match.Backtracks() {
		return l.match.Match(tag)
	}
	begun := time.Now()
	ok, err := l.match.Match(tag)
	now := time.Now()
	d := now.Sub(begun)
	if d < effortFree {
		d = 0
	}
	own, all := l.effort.spend(d, effortOfListener, now), l.events.efforts.spend(l.who.Owner, d, now)
	if own && all {
		return ok, err
	}
	return false, rpc.Errorf(rpc.Usage, "the regular expressions of this listener, or of all those of %s, take too long: a listener has %s, and a user %s", l.who.Name(), effortOfListener, effortOfPrincipal).
		WithHint("write them without lookaround and back references, or match by prefix")
}
