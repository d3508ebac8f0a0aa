package rpc

import (
	"sync"

	"github.com/brinebus/brine/internal/bus"
)

// maxSent is how many bytes of all answers to one principal may be under way, which is what all
// the readers of theirs that read nothing cost the daemon. Further answers wait until
// something is taken, or one of those ends, as it does after Stall. One that was sent whole
// counts no more: what the server keeps of it is bounded for each connection. Root and the daemon's own
// user, who could stop it anyway, have the window of each answer only.
const maxSent = 4 * Window

// share is what is under way to one principal. nil is without a limit.
type share struct {
	mu      sync.Mutex
	answers int
	sent    int64
	free    chan struct{} // closed when something is taken
}

// shareOf books an answer to the principal. The caller holds the lock.
func (s *Server) shareOf(from bus.Identity, principal string) *share {
	if from.IsOperator() {
		return nil
	}
	own := s.shares[principal]
	if own == nil {
		own = &share{free: make(chan struct{})}
		s.shares[principal] = own
	}
	own.answers++
	return own
}

// dropShare ends the booking of an answer. The caller holds the lock.
func (s *Server) dropShare(principal string) {
	if own := s.shares[principal]; own != nil {
		if own.answers--; own.answers <= 0 {
			delete(s.shares, principal)
		}
	}
}

// open says whether more fits.
func (s *share) open() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent < maxSent
}

// take books n bytes, if they fit.
func (s *share) take(n int64) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent >= maxSent {
		return false
	}
	s.sent += n
	return true
}

// give says that n bytes are under way no more.
func (s *share) give(n int64) {
	if s == nil || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent -= n
	close(s.free)
	s.free = make(chan struct{})
}

// freed is closed when more fits than at the time of the call.
func (s *share) freed() <-chan struct{} {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// leave gives back what the answer had under way: its principal is gone, or its end follows.
func (o *answerer) leave() {
	o.count.Lock()
	defer o.count.Unlock()
	o.share.give(o.sent - o.taken)
	o.taken = o.sent
}
