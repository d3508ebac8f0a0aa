package membership

import (
	"sync"
	"time"
)

const (
	// lateLoss is how much later, at most, a member may notice that it does not reach most of the others
	// than that it is not current: its routes must end first.
	lateLoss = 5 * time.Second
	// rejoinTime is enough for an election, and to hear of what was decided meanwhile.
	rejoinTime = time.Minute
)

// alone is how long a member with cluster_without_quorum: run serves minions with the keys that it knew last.
// It does so only for want of the others, and only if it knew what they had decided when it lost them: a
// member that has just started, or that cannot carry out a refusal, does not.
type alone struct {
	mu    sync.Mutex
	lost  bool
	until time.Time
}

// serves reports whether minions are served. It is called every second, with whether the member is current, and
// whether it does not reach most of the others.
func (a *alone) serves(current, lost bool, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case current:
		a.lost, a.until = false, now.Add(lateLoss)
	case lost && (a.lost || now.Before(a.until)):
		a.lost, a.until = true, now.Add(rejoinTime)
	case !now.Before(a.until):
		a.lost = false
	}
	return current || a.lost || now.Before(a.until)
}
