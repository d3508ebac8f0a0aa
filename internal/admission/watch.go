package admission

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// secondLook is how long after a change of keys connections are checked once more, at least: much
// later than the microseconds between checking and registering one. It takes at most twice that.
const secondLook = time.Second

// Watch acts on every change of the key store: it cuts the connections whose key has another
// state now, and wakes those that wait for their key.
func (a *Admission) Watch(changed <-chan pki.Seen) {
	// Anybody can change the store, with a key that waits: a change must not postpone the second
	// look at the ones before it.
	again := time.NewTimer(secondLook)
	defer again.Stop()
	var before, latest suspects // of the interval before the latest second look, and since that
	var unread pki.Seen         // what could not be read
	act := func(seen pki.Seen) {
		changes, err := a.lookAtKeys(seen)
		if err != nil {
			unread.Add(seen)
		}
		now := lostBy(changes)
		// A minion may have been admitted with a key that was accepted and deleted again
		// before the first check, so it is not known here.
		first := suspects{clients: seen.Clients || seen.All, all: seen.All && err == nil}
		first.add(now)
		first.add(seen.IDs)
		latest.join(first)
		a.cutRefused(first) // before anything that may take its time
		a.announceKeys(changes)
		if len(now) > 0 {
			a.Jobs.Revoke()
		}
		a.waiting.Wake(seen, changes)
	}
	for {
		select {
		case seen, ok := <-changed:
			if !ok {
				a.tellGathered(true)
				return
			}
			act(seen)
		case <-again.C:
			// The first check has missed a connection that was checked just before the change
			// and registered just after it.
			a.cutRefused(before)
			before, latest = latest, suspects{}
			seen := unread
			for _, id := range a.Keys.Unread() {
				seen.Add(ofID(id))
			}
			if unread = (pki.Seen{}); seen.All || len(seen.IDs) > 0 {
				act(seen) // nothing else repeats it
			}
			a.tellGathered(false)
			again.Reset(secondLook)
		}
	}
}

// ofID is that the keys of a minion may have changed.
func ofID(id salt.MinionID) pki.Seen { return pki.Seen{IDs: map[salt.MinionID]bool{id: true}} }

// maxUnread is how many lines a minute the log has about a key store that cannot be read: it is tried
// again each second.
const maxUnread = 3

// lookAtKeys reads the keys that may have changed, and tells the other members which did. After an
// error it has to be called again.
func (a *Admission) lookAtKeys(seen pki.Seen) (changes []keyring.Change, err error) {
	if seen.All {
		err = a.Keys.Refresh()
	} else if len(seen.IDs) > 0 {
		err = a.Keys.Look(slices.Collect(maps.Keys(seen.IDs))...)
	}
	if err != nil {
		a.often.Log(a.Log, slog.LevelError, "unread", maxUnread, "key store not read", "err", err)
	}
	changes = a.Keys.Take()
	if a.Changed != nil {
		a.Changed(changes)
	}
	return changes, err
}

// lostBy returns the ids that have lost an accepted key.
func lostBy(changes []keyring.Change) map[salt.MinionID]bool {
	ids := map[salt.MinionID]bool{}
	for _, c := range changes {
		if c.Before == pki.Accepted {
			ids[c.ID] = true
		}
	}
	return ids
}

// cutRefused ends the connections among the suspects whose key is no longer accepted, and those of
// clients that are no longer valid.
func (a *Admission) cutRefused(s suspects) {
	look := func(i bus.Identity, cut func()) {
		if i.Role == bus.RoleClient {
			a.cutClient(i, cut)
			return
		}
		if !s.ids[salt.MinionID(i.Name)] && a.Keys.Accepts(salt.MinionID(i.Name), i.Key) {
			return // all minions are checked: not by as many files, and not cut if these cannot be read now
		}
		_, state, err := a.Keys.ByToken(salt.MinionID(i.Name), i.Key)
		if err == nil && state == pki.Accepted || err != nil && a.Keys.Stands(salt.MinionID(i.Name), i.Key) {
			return
		}
		a.Log.Info("cutting a connection: its key is no longer accepted", "minion", i.Name, "state", state.String())
		if err == nil && state == pki.Unknown {
			// The store was read just now and may be ahead of the announced changes: whoever
			// sees the connection end must find nothing about the minion any more.
			a.Minions.Forget(salt.MinionID(i.Name))
		}
		cut()
	}
	switch {
	case s.nobody():
	case s.all || s.clients:
		a.Connections.ConnectionsOf(s.has, look)
	default: // many keys may change one by one, and a look at all connections for each would keep others waiting
		for id := range s.ids {
			a.Connections.ConnectionsOfID(string(id), look)
		}
	}
}

// Cut ends the connection with this inbox.
func (a *Admission) Cut(inbox string) { a.Connections.CutInbox(inbox) }

// announceKeys fires salt/key for changes, as salt-key does in Salt; here it happens whoever
// moved the file. Keys that made room for others are only counted in the log.
func (a *Admission) announceKeys(changes []keyring.Change) {
	gaveWay := 0
	for _, c := range changes {
		switch {
		case c.GaveWay:
			gaveWay++
		case c.Act() != "":
			a.tellKey(c.Name, c.Act())
		}
		if !c.GaveWay && !c.Recalled && c.Act() == keyring.Delete && decided(c.Before) { // at the start those without a key were forgotten
			a.Minions.Forget(c.ID)
		}
	}
	if gaveWay > 0 && a.throttle.First("keys gave way", time.Now()) {
		a.Log.Warn("too many keys wait to be accepted: those that were not seen for the longest time are removed", "limit", pki.MaxWaiting, "limit_of_host", pki.MaxWaitingOfHost, "now", gaveWay)
	}
}

// decided reports whether somebody has decided about a key with this state. Of one that has only waited nothing is stored, and
// anybody can make one wait.
func decided(s pki.State) bool { return s == pki.Accepted || s == pki.Rejected }

func (a *Admission) tellKey(name pki.Name, act string) {
	who, rule := a.Keys.TakeAction(name, act)
	gathered := &a.byRules
	if who.Elsewhere {
		gathered = &a.byOthers
	}
	if rule != "" && !gathered.own(name, act, rule, time.Now()) {
		return
	}
	a.Log.Info("key "+act, "minion", name.ID, "user", who.User, "source", who.Source, "rule", rule)
	tag := "salt/key"
	if who.Elsewhere { // a reaction to a decision runs once in the whole system
		tag = ""
	}
	a.Decided.Tell(audit.Entry{
		Kind: audit.Key, Verdict: audit.Allowed, Who: who, Fun: "key." + act, Minions: []salt.MinionID{name.ID}, Count: 1, Finger: name.Finger, Rule: rule,
	}, tag, map[string]any{"result": true, "act": act, "id": string(name.ID)})
}

// KeyAction records which operator is about to change keys through the key files. The answer
// says so while nothing can be stored: the change counts at this master all the same.
func (a *Admission) KeyAction(ctx context.Context, r *rpc.Request) error {
	var q protocol.KeyAction
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := a.Local(ctx, r.From)
	for _, k := range q.Keys {
		a.Keys.Expect(k, q.Act, who)
	}
	done := protocol.KeyActed{Elsewhere: a.DecidedElsewhere()}
	if err := a.Unwritable(); err != nil {
		done.Unstored = err.Error()
	}
	return r.Last(ctx, done)
}

// CutOlder ends the older connection of a minion that connects again: either its end was not
// noticed yet, or another machine has a copy of the key. Both would run every job.
func (a *Admission) CutOlder(id salt.MinionID, inbox string) {
	newer, _ := a.Connections.Owner(inbox)
	a.Connections.ConnectionsOfMinion(string(id), func(i bus.Identity, cut func()) {
		if i.Inbox() == inbox {
			return
		}
		a.often.LogMarked(a.Log, slog.LevelWarn, "older "+i.Name, maxConnected, "minion connected again while its older connection lasts; the older one is cut. If this goes on, two machines share its key",
			append([]any{"minion", id}, logging.Remotes(newer.Source, i.Source)...)...)
		cut()
	})
}
