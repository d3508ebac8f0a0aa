package upstream

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/protocol"
)

const (
	// homeTime is the time within which a minion that is connected to another member moves to
	// its own. Nobody waits for it, and a member that is back gets its minions one by one: 5,000
	// of them are 17 a second.
	homeTime = 5 * time.Minute
	// busyTime is the longest pause before a minion that runs jobs looks again.
	busyTime = 30 * time.Second
	// lingerTime is how long a connection lasts that was replaced by one to another member. What
	// is under way on it still arrives, and the new connection is known to all members before
	// this one ends.
	lingerTime = 500 * time.Millisecond
	// The pauses before a member that stops is left, if no other one takes the minion.
	firstLeavePause = 100 * time.Millisecond
	maxLeavePause   = 2 * time.Second
)

// learn takes the list of members from a master whose key is trusted. With open_mode, any key is
// accepted, and nothing is learned from its holder.
func (s *Session) learn(cluster *protocol.Cluster) {
	if s.basis != refused && s.basis != onOpening {
		s.Up.all.cluster.learn(s.Master, cluster)
	}
	if s.basis != onSign { // its key is not signed
		cluster = nil
	}
	s.Up.all.systems.learn(s.Up.Number, s.Master.SHA256(), cluster, !s.learned)
	s.learned = true
}

// welcomed learns from the answer to hello, unless the members have changed meanwhile: what the
// master says about that may be handled first.
func (s *Session) welcomed(cluster *protocol.Cluster) {
	s.naming.Lock()
	defer s.naming.Unlock()
	if !s.named {
		s.learn(cluster)
	}
}

// said handles a message on the control subject.
func (s *Session) said(body []byte) {
	var c protocol.Control
	if err := json.Unmarshal(body, &c); err != nil {
		s.Up.log.Debug("unreadable message of the master about its cluster", "err", err)
		return
	}
	if c.Cluster != nil {
		s.naming.Lock()
		s.named = true
		s.learn(c.Cluster)
		s.naming.Unlock()
	}
	if c.Leave {
		s.asked.Do(func() { close(s.leave) })
	}
}

// watchLeave connects to another member if the master asks for that, since it stops. If the minion is
// connected to others already, it only leaves this one.
func (u *Uplink) watchLeave(ctx context.Context, current *Session, back chan<- *Session) {
	select {
	case <-current.leave:
	case <-ctx.Done():
		return
	}
	u.log.Info("the master stops; the minion uses another member of its cluster", "master", current.Name)
	var pauses backoff.Pauses
	for {
		if slices.ContainsFunc(u.all.System(u.Number), func(s *Session) bool { return s != current }) {
			backoff.Sleep(ctx, lingerTime)
			current.Close()
			return
		}
		for _, name := range u.roster.others(current) {
			if u.moveTo(ctx, name, back) || ctx.Err() != nil {
				return
			}
		}
		d := pauses.Next(firstLeavePause, maxLeavePause)
		if !backoff.Sleep(ctx, d+rand.N(d)) {
			return
		}
	}
}

// moveTo makes a session with another member, and sends it. It returns false if the member does
// not take this minion.
func (u *Uplink) moveTo(ctx context.Context, name string, back chan<- *Session) bool {
	next, err := u.openFirst(ctx, name)
	if err != nil && ctx.Err() == nil {
		u.log.Debug("the member does not take this minion", "master", name, "err", err)
		if isRefusal(err) {
			u.tellRefused(ctx, name, err)
		}
	}
	if next == nil || err != nil {
		return false
	}
	next.first, next.moved = false, true
	select {
	case back <- next:
	case <-ctx.Done():
		next.Close()
	}
	return true
}

// watchHome moves the minion to the member that it belongs to, when that runs and no job does.
// The member gets its minions slowly, however many there are.
func (u *Uplink) watchHome(ctx context.Context, current *Session, back chan<- *Session) {
	if !u.roster.spreads {
		return
	}
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	planned := "" // the member that due is for
	for {
		m, ok, changed := u.all.cluster.home()
		switch {
		case !ok || u.all.cluster.isMember(m, current):
			planned = ""
			due.Stop()
		case m.Name != planned:
			planned = m.Name
			due.Reset(rand.N(homeTime << u.doubts))
		}
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			return
		case <-due.C:
		}
		switch {
		case planned == "":
		case u.all.Busy != nil && u.all.Busy():
			due.Reset(rand.N(busyTime))
		case u.moveTo(ctx, u.all.cluster.name(m), back):
			return
		default:
			due.Reset(rand.N(homeTime << u.doubts))
		}
	}
}

// linger ends a session that was replaced, a little later.
func (u *Uplink) linger(ctx context.Context, s *Session) {
	u.lingering.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, lingerTime)
		defer cancel()
		select {
		case <-ctx.Done():
		case <-s.Closed:
		}
		s.Close()
	})
}

// takeSpread returns over how long the minions of a lost member distribute their first attempts,
// once after each loss.
func (u *Uplink) takeSpread() time.Duration {
	d := u.spread
	u.spread = 0
	return d
}
