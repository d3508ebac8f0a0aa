package rpc

import (
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/bus"
)

// Limits of how often one machine may send requests. A busy minion sends hundreds of receipts
// and returns a second, and thousands of events with one request.
const (
	defaultPace = 5000   // requests of one machine in a second; twice as many until one is refused
	maxPaced    = 20_000 // remembered principals; beyond that, all counts start again
	// A message that acknowledges a part of an answer counts for a part of a request: it costs
	// only a look-up. Readers that keep up send one for each message that they get.
	windowWeight = 0.25
	// A key that is not accepted has one question to ask, and a guest one login, so they may
	// send fifty requests a second.
	unacceptedWeight = 100
	// Their requests fit into this many bytes. A longer message counts for as many requests as
	// it could contain, so that the connection ends after two of 64 KB, since reading and
	// refusing them is what costs. A single message never counts for more than that, so the
	// first one is refused for its length.
	unacceptedSize = 1 << 10
	unacceptedMost = 64
)

// paces limits the rate of each machine, so that one that sends as fast as it can does not
// delay the others. It is not safe for concurrent use. golang.org/x/time/rate would only
// replace the token bucket: requests with weights below one, how long not to read from a
// sender, and when to cut it are needed in addition.
type paces struct {
	perSecond float64
	of        map[string]*pace
}

// pace is how many requests a principal has left, at a certain time.
type pace struct {
	left float64
	at   time.Time
	over float64 // refused requests since it was idle, or since its connection was ended
}

// take reports whether the principal may send one more request now, and whether to cut it
// because it goes on for as many refused requests as it may send in a second. ahead is for how
// long not to read from it, so that it is back at its rate. The request counts for weight
// requests.
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
		own.over = 0 // it was idle
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

// A sender beyond its rate is not read from until it is back at it. So it waits on its own
// side, which is cheaper than refusing its requests, and loses nothing.
const (
	aheadTime   = 50 * time.Millisecond // requests of so much time may come at once
	longestPush = 500 * time.Millisecond
)

// ahead returns for how long not to read from a sender that sent that many requests too early.
func (p *paces) ahead(early float64) time.Duration {
	d := time.Duration(early/p.perSecond*float64(time.Second)) - aheadTime
	return max(0, min(d, longestPush))
}

// keepPace counts a message for the rate of its sender, and stops reading for a while if it is
// beyond that. Whoever has limits of their own, see Quota, also has a rate of their own, and only the
// connection of the message is not read: the sender's other ones serve other people.
func (s *Server) keepPace(from bus.Identity, weight float64) (taken, cut bool) {
	if from.IsOperator() {
		return true, false
	}
	if unaccepted(from) {
		weight = unacceptedWeight * max(1, weight)
	}
	name := s.quota(from)
	s.mu.Lock()
	ahead, taken, cut := s.paces.take(name, weight, time.Now())
	s.mu.Unlock()
	switch {
	case ahead <= 0:
	case name != principal(from) && s.SlowOne != nil:
		s.SlowOne(from.Inbox(), ahead)
	case s.Slow != nil:
		s.Slow(from, ahead)
	}
	return taken, cut
}

// unaccepted reports whether the sender is known by a key that gives no rights.
func unaccepted(i bus.Identity) bool {
	return i.Role == bus.RoleUnaccepted || i.Role == bus.RoleGuest
}

// stray counts a message that is not a request by the sender's connection, and so cannot be
// answered. A key that is not accepted is cut after few of them.
func (s *Server) stray(from bus.Identity) {
	_, cut := s.keepPace(from, 1)
	if cut && unaccepted(from) && s.CutKey != nil {
		s.CutKey(from.Key)
	}
}

// tooFast slows down a sender beyond its rate. A machine that is far beyond it is also refused,
// and cut if it goes on. The first piece of a long request counts for all pieces; later ones
// are not refused, since half a message would look like junk. It counts for what it starts: a
// job with a target of 60 KB is recorded and sent together with that target.
func (s *Server) tooFast(from bus.Identity, e *bus.Endpoint, in incoming) error {
	taken, cut := true, false
	if !in.later {
		long, _ := weigh(len(in.data))
		weight := e.Check.Weight() * float64(long)
		if unaccepted(from) {
			weight = float64(min(1+len(in.data)/unacceptedSize, unacceptedMost))
		}
		taken, cut = s.keepPace(from, weight)
	}
	if taken || in.kind == kindPart || from.Role == bus.RoleUser || from.Role == bus.RoleClient || from.Role == bus.RoleRemote {
		return nil
	}
	if cut && s.Cut != nil {
		s.throttle.Log(s.log, slog.LevelWarn, "cut "+from.String(), maxFailed, "cutting a connection: it does not stop asking", "from", from.String(), "limit", s.paces.perSecond)
		s.Cut(inboxOf(in.reply))
	}
	return Errorf(Busy, "too many requests: a minion may make %.0f a second", s.paces.perSecond)
}
