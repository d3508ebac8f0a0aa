package bus

import "time"

// Bounds of how often one machine may ask. A minion that works hard sends hundreds
// of receipts and returns a second, and thousands of events with one request.
const (
	defaultPace = 5000   // requests of one machine in a second; twice as many at once
	maxPaced    = 20_000 // askers that are remembered; beyond it all begin anew
)

// paces holds each machine to its pace, so that one that asks as fast as it can does
// not stand in the way of the others. It is not safe for concurrent use.
type paces struct {
	perSecond float64
	of        map[string]*pace
}

// pace is how many requests an asker has left, at a time.
type pace struct {
	left float64
	at   time.Time
	over float64 // how many were refused since it came to rest, or since its connection was ended
}

// take says whether the asker may ask once more now, and whether it shall be got rid
// of since it does not stop asking: for as many requests as it may make in a second.
func (p *paces) take(asker string, now time.Time) (taken, cut bool) {
	burst := 2 * p.perSecond
	own := p.of[asker]
	if own == nil {
		if p.of == nil || len(p.of) >= maxPaced {
			p.of = map[string]*pace{}
		}
		own = &pace{left: burst, at: now}
		p.of[asker] = own
	}
	own.left = min(burst, own.left+now.Sub(own.at).Seconds()*p.perSecond)
	own.at = now
	if own.left > burst/2 {
		own.over = 0 // it has come to rest
	}
	if own.left >= 1 {
		own.left--
		return true, false
	}
	if own.over++; own.over < p.perSecond {
		return false, false
	}
	own.over = 0
	return false, true
}

// pushBack is for how long a sender beyond its pace is not read from: it then waits on its own
// side, which is cheaper than to refuse what it sends.
const pushBack = 50 * time.Millisecond

// tooFast pushes back a sender beyond its pace. A machine is refused, too, and its
// connection ended if it goes on. Pieces of a long request are let pass: their bytes are
// bounded, and half a message would be taken for junk.
func (s *Server) tooFast(from Identity, reply string, data []byte) error {
	if isOperator(from) || len(data) > 0 && data[0] == framePart {
		return nil
	}
	s.mu.Lock()
	whole := s.partial[reply] == nil
	taken, cut := true, false
	if whole {
		taken, cut = s.paces.take(asker(from), time.Now())
	}
	s.mu.Unlock()
	if taken {
		return nil
	}
	if s.Slow != nil {
		s.Slow(from, pushBack)
	}
	if from.Role == RoleUser || from.Role == RoleClient {
		return nil
	}
	if cut && s.Cut != nil {
		s.log.Warn("cutting a connection: it does not stop asking", "from", from.String(), "limit", s.paces.perSecond)
		s.Cut(inboxOf(reply))
	}
	return Errorf(Busy, "too many requests: a minion may make %.0f a second", s.paces.perSecond)
}
