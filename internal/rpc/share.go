package rpc

import (
	"sync"

	"github.com/brinebus/brine/internal/bus"
)

// maxSent is how many bytes of all answers to one principal may be under way: the maximum cost
// of all their readers that read nothing. Further answers wait until something is read, or one
// of the answers ends, as it does after Stall. An answer that was sent completely no longer
// counts: what the server queues of it is limited for each connection. For root and the
// daemon's own user, who could stop the daemon anyway, only the window of each answer applies.
const maxSent = 4 * Window

// share is what is under way to one principal. nil has no limit.
type share struct {
	mu      sync.Mutex
	answers int
	sent    int64
	free    chan struct{} // closed when something is read
}

// shareOf registers an answer to the principal. The caller holds the lock.
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

// dropShare removes an answer to the principal. The caller holds the lock.
func (s *Server) dropShare(principal string) {
	if own := s.shares[principal]; own != nil {
		if own.answers--; own.answers <= 0 {
			delete(s.shares, principal)
		}
	}
}

// open reports whether more fits.
func (s *share) open() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent < maxSent
}

// take counts n bytes if they fit.
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

// give subtracts n bytes.
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

// freed returns a channel that is closed when more fits than at the time of the call.
func (s *share) freed() <-chan struct{} {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// leave subtracts what the answer had under way: its principal is gone, or its end follows.
func (o *answerer) leave() {
	o.count.Lock()
	defer o.count.Unlock()
	o.share.give(o.sent - o.taken)
	o.taken = o.sent
}
