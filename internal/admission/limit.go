package admission

import (
	"sync"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// errTooMany is the answer to a minion beyond max_minions. Like errStale it says nothing about the
// minion's key: the minion tries its other masters, and this one again later.
var errTooMany = rpc.Errorf(rpc.Unavailable, "as many minions are connected to this master as it admits (max_minions)")

// admitted are the minions that were admitted a moment ago, and whose connections may not be
// registered yet.
type admitted struct {
	mu   sync.Mutex
	when map[salt.MinionID]time.Time
}

// registerTime is how long an admitted minion counts without a registered connection. Usually it
// takes microseconds.
const registerTime = 2 * time.Second

// full reports whether a minion may not connect, since as many others as MaxMinions are connected.
// With admit it counts from now on, if it may.
func (a *Admission) full(id salt.MinionID, admit bool) bool {
	if a.MaxMinions == 0 {
		return false
	}
	a.admitted.mu.Lock()
	defer a.admitted.mu.Unlock()
	now, others, connected := time.Now(), a.Connections.CountMinions(), a.connected(id)
	if connected {
		others--
	}
	for other, when := range a.admitted.when { // few: they are those of two seconds
		switch {
		case now.Sub(when) > registerTime:
			delete(a.admitted.when, other)
		case other != id && !a.connected(other):
			others++
		}
	}
	if others >= a.MaxMinions {
		return !connected
	}
	if admit {
		if a.admitted.when == nil {
			a.admitted.when = map[salt.MinionID]time.Time{}
		}
		a.admitted.when[id] = now
	}
	return false
}

// connected reports whether a minion has a connection: it may replace that by another one.
func (a *Admission) connected(id salt.MinionID) bool {
	found := false
	a.Connections.ConnectionsOfMinion(string(id), func(bus.Identity, func()) { found = true })
	return found
}

// turnedAway reports whether a connection has no rights only because there are too many minions.
func (a *Admission) turnedAway(i bus.Identity) bool {
	if a.MaxMinions == 0 || i.Role != bus.RoleUnaccepted {
		return false
	}
	_, state, err := a.Keys.ByToken(salt.MinionID(i.Name), i.Key)
	return err == nil && state == pki.Accepted && a.full(salt.MinionID(i.Name), false)
}

// tellFull logs and announces a minion that may not connect, in Salt's form.
func (a *Admission) tellFull(p broker.Peer, id salt.MinionID, key pki.PublicKey) {
	now := time.Now()
	if !a.throttle.First("full "+string(id), now) || !a.throttle.Few("full", now, maxOfHost) {
		return // it keeps trying
	}
	a.Log.Warn("a minion was turned away, since max_minions others are connected", "minion", id, "remote", p.Remote, "limit", a.MaxMinions)
	a.Audit.Note(audit.Entry{Kind: audit.Key, Who: keyring.Remote(id, p.Remote), Fun: "key.connect", Finger: key.SHA256(), Reason: "as many minions are connected as max_minions allows"})
	a.Events.Announce("salt/auth", map[string]any{"result": false, "act": "full", "id": string(id), "pub": string(key.PEM())})
}
