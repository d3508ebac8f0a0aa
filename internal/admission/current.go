package admission

import (
	"context"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
)

// errStale is the answer to a minion where this master does not know what the others have decided.
// It says nothing about the minion's key: the minion treats this master like one that it cannot
// reach, and goes to the next one.
var errStale = rpc.Errorf(rpc.Unavailable, "this master does not know at the moment which keys the other masters have refused, and admits no minion")

// stale reports whether no minion is admitted: any key may have been refused elsewhere.
func (a *Admission) stale() bool {
	if a.Current == nil {
		return false
	}
	current := a.Current()
	if current {
		a.known.Store(true)
	}
	return !current
}

// tellStale says why no minion is admitted. It is so for a moment at each start.
func (a *Admission) tellStale() {
	if !a.known.Load() {
		a.throttle.Log(a.Log, slog.LevelInfo, "unread", 1, "minions are not admitted yet: this master has started, and reads what the other masters have decided about keys")
		return
	}
	a.throttle.Log(a.Log, slog.LevelWarn, "stale", 1, "minions are not admitted: what the other masters have decided about keys is not known at the moment")
}

// currentLook is how often WatchCurrent looks.
const currentLook = time.Second

// WatchCurrent cuts the minions, and everybody whose key waits, while this master is not current:
// a minion whose key was refused elsewhere would stay otherwise, and one whose key is accepted is
// served by a master that is current. It cuts them again each second, since a connection may have been
// admitted just before and registered just after the first time.
func (a *Admission) WatchCurrent(ctx context.Context) {
	tick := time.NewTicker(currentLook)
	defer tick.Stop()
	for {
		if a.stale() {
			a.cutStale()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (a *Admission) cutStale() {
	minions := func(i bus.Identity) bool {
		return i.Role == bus.RoleMinion || i.Role == bus.RoleCaller || i.Role == bus.RoleUnaccepted
	}
	cuts := 0
	a.Connections.ConnectionsOf(minions, func(_ bus.Identity, cut func()) {
		cut()
		cuts++
	})
	switch {
	case cuts == 0:
	case !a.known.Load(): // they came before it could know, and were told so
		a.tellStale()
	default:
		a.throttle.Log(a.Log, slog.LevelError, "cut stale", 1, "cutting all minions: what the other masters have decided about keys is not known", "connections", cuts)
	}
}
