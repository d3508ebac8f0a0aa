package rpc

import (
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/bus"
)

// Bounds of how often one machine may ask. A minion that works hard sends hundreds
// of receipts and returns a second, and thousands of events with one request.
const (
	defaultPace = 5000   // requests of one machine in a second; twice as many before one is refused
	maxPaced    = 20_000 // principals that are remembered; beyond it all begin anew
	// A message that says how much of an answer was taken counts for a part of a request: it
	// is looked up and forgotten. Readers that keep up send one for each message that they get.
	windowWeight = 0.25
	// A key that is not accepted has one question to ask, and a guest one login, so it may ask fifty times a second.
	unacceptedWeight = 100
)

// paces holds each machine to its pace, so that one that asks as fast as it can does
// not stand in the way of the others. It is not safe for concurrent use. A bucket of tokens
// is all that golang.org/x/time/rate would bring: that requests have weights below one, for how
// long a sender is not read from and when it is cut is the rest.
type paces struct {
	perSecond float64
	of        map[string]*pace
}

// pace is how many requests a principal has left, at a time.
type pace struct {
	left float64
	at   time.Time
	over float64 // how many were refused since it was idle, or since its connection was ended
}

// take says whether the principal may ask once more now, and whether it shall be got rid
// of since it does not stop asking: for as many requests as it may make in a second.
// ahead is for how long it should not be heard, to be back at its pace. The request counts
// for as many as its weight says.
func (p *paces) take(principal string, weight float64, now time.Time) (ahead time.Duration, taken, cut bool) {
	burst := 2 * p.perSecond
	own := p.of[principal]
	if own == nil {
		if p.of == nil || len(p.of) >= maxPaced {
			p.of = map[string]*pace{}
		}
		own = &pace{left: burst, at: now}
		p.of[principal] = own
	}
	own.left = min(burst, own.left+now.Sub(own.at).Seconds()*p.perSecond)
	own.at = now
	if own.left > burst/2 {
		own.over = 0 // it has paused
	}
	if own.left >= weight {
		own.left -= weight
		return p.ahead(burst - own.left), true, false
	}
	if own.over += max(1, weight); own.over < p.perSecond {
		return longestPush, false, false
	}
	own.over = 0
	return longestPush, false, true
}

// A sender that is ahead of its pace is not read from until it is back at it: it then waits
// on its own side, which is cheaper than to refuse what it sends, and costs it nothing.
const (
	aheadTime   = 50 * time.Millisecond // so many requests it may have at once
	longestPush = 500 * time.Millisecond
)

// ahead is for how long a sender should not be heard that made so many requests too early.
func (p *paces) ahead(early float64) time.Duration {
	d := time.Duration(early/p.perSecond*float64(time.Second)) - aheadTime
	return max(0, min(d, longestPush))
}

// keepPace counts a message in the pace of its sender, and lets nothing more be read of one
// that is ahead of it.
func (s *Server) keepPace(from bus.Identity, weight float64) (taken, cut bool) {
	if from.IsOperator() {
		return true, false
	}
	if from.Role == bus.RoleUnaccepted || from.Role == bus.RoleGuest {
		weight = unacceptedWeight
	}
	s.mu.Lock()
	ahead, taken, cut := s.paces.take(principal(from), weight, time.Now())
	s.mu.Unlock()
	if s.Slow != nil && ahead > 0 {
		s.Slow(from, ahead)
	}
	return taken, cut
}

// stray counts a message that is no request of a connection of its sender, to which nothing
// can be answered. A key that is not accepted does not stay for many of them.
func (s *Server) stray(from bus.Identity) {
	_, cut := s.keepPace(from, 1)
	if cut && (from.Role == bus.RoleUnaccepted || from.Role == bus.RoleGuest) && s.CutKey != nil {
		s.CutKey(from.Key)
	}
}

// begun says whether pieces of the request with this reply subject have come.
func (s *Server) begun(reply string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.partial[reply] != nil
}

// tooFast pushes back a sender that is ahead of its pace. A machine that gets far ahead all
// the same is refused, too, and its connection ended if it goes on. The first piece of a
// long request counts for all, and is not refused: half a message would be taken for junk. It counts for
// as many as it does when it is begun: a job with a target of 60 KB is written down and sent with it.
func (s *Server) tooFast(from bus.Identity, e *bus.Endpoint, reply string, data []byte) error {
	taken, cut := true, false
	if !s.begun(reply) {
		long, _ := weigh(len(data))
		taken, cut = s.keepPace(from, e.Check.Weight()*float64(long))
	}
	part := len(data) > 0 && data[0] == framePart
	if taken || part || from.Role == bus.RoleUser || from.Role == bus.RoleClient || from.Role == bus.RoleRemote {
		return nil
	}
	if cut && s.Cut != nil {
		s.throttle.Log(s.log, slog.LevelWarn, "cut "+from.String(), maxFailed, "cutting a connection: it does not stop asking", "from", from.String(), "limit", s.paces.perSecond)
		s.Cut(inboxOf(reply))
	}
	return Errorf(Busy, "too many requests: a minion may make %.0f a second", s.paces.perSecond)
}
