package upstream

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// watchFirst tries from time to time whether the first master of the list accepts this minion
// again, and then sends the session with it. It does nothing if master_failback is off or the
// first master is in use.
//
// The new session exists before the other one is ended: a master that only sends a greeting is
// no reason to leave one that works.
func (u *Uplink) watchFirst(ctx context.Context, current *Session, back chan<- *Session) {
	first, every := u.roster.first(), u.failbackInterval()
	if first == "" || first == current.Name || every <= 0 {
		return
	}
	for backoff.Sleep(ctx, every) {
		next, err := u.openFirst(ctx, first)
		if err != nil {
			u.log.Debug("the first master is not back", "master", first, "err", err)
			if isRefusal(err) {
				u.tellRefused(ctx, first, err)
			}
			continue
		}
		if next == nil {
			continue
		}
		select {
		case back <- next:
		case <-ctx.Done():
			next.Close()
		}
		return
	}
}

// openFirst makes a session with the first master; nil if it does not accept this minion's key.
func (u *Uplink) openFirst(ctx context.Context, name string) (*Session, error) {
	l, err := u.dial(ctx, name)
	if err != nil {
		return nil, err
	}
	if !l.Ready() {
		l.Close()
		return nil, nil
	}
	s, err := u.greet(ctx, l, name)
	if err == nil {
		s.first = true
	}
	return s, err
}

const (
	// maxDoubts limits the pause before failing back: 64 intervals.
	maxDoubts = 6
	// trustAfter is for how many intervals a session with the first master must last until the
	// pause is normal again.
	trustAfter = 10
)

// failbackInterval is the pause between two tries of the first master. It doubles each time
// that the first master was lost soon after failing back to it, so that an unstable one does
// not make the minion switch all the time.
func (u *Uplink) failbackInterval() time.Duration { return u.failbackSetting() << u.doubts }

func (u *Uplink) failbackSetting() time.Duration {
	if d := u.all.Config.MasterFailbackInterval; d > 0 {
		return d
	}
	return u.all.Config.MasterAliveInterval
}

// doubt records how long a session lasted that was made by failing back, or by moving to another
// member of a cluster.
func (u *Uplink) doubt(s *Session, lasted time.Duration) {
	enough := trustAfter * u.failbackSetting()
	if s.moved {
		enough = homeTime
	}
	switch {
	case !s.first && !s.moved:
	case lasted < enough:
		u.doubts = min(u.doubts+1, maxDoubts)
	default:
		u.doubts = 0
	}
}

// pingAnswer is how long a master may take to store a minion_ping: longer than it waits itself while its
// cluster elects a leader, which is no reason for its minions to connect again.
const pingAnswer = 30 * time.Second

// ping fires Salt's event minion_ping on the master's bus every ping_interval, and ends the
// session if it is not answered.
func (u *Uplink) ping(ctx context.Context, s *Session) {
	every := u.all.Config.PingInterval
	if every <= 0 {
		return
	}
	for backoff.Sleep(ctx, every) {
		if !u.answersPing(ctx, s, max(pingAnswer, u.all.Config.AuthTimeout)) {
			s.Close()
			return
		}
	}
}

// answersPing reports whether the master has answered a minion_ping within the time. An answer may be
// that the event cannot be stored, for example on a full disk: connecting again would change nothing.
func (u *Uplink) answersPing(ctx context.Context, s *Session, within time.Duration) bool {
	f := protocol.Fire{Form: protocol.FormSingle, Events: []event.Item{{Tag: "minion_ping", Data: []byte(`"ping"`)}}}
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := s.Ask(asking, protocol.OpFire, f, nil)
	switch {
	case err == nil, ctx.Err() != nil:
		return true
	case rpc.Answered(err):
		u.log.Warn("the master has not stored minion_ping", "master", s.Name, "err", err)
		return true
	}
	u.log.Warn("the master does not answer minion_ping; connecting again", "master", s.Name, "err", err)
	return false
}
