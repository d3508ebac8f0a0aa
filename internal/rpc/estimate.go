package rpc

import (
	"context"
	"sync"
	"time"
)

// Limits of the estimated memory of all requests under way together.
const (
	maxBuiltOfAll = 192 << 20
	// largePart is how much of that one identity may have when only lastPart is left;
	// modestPart it may always have.
	largePart  = maxBuiltOfAll / 4
	lastPart   = maxBuiltOfAll / 8
	modestPart = 1 << 20
	// buildWait is how long a request waits for others.
	buildWait = 10 * time.Second
)

// estimates counts the memory of decoded bodies, by identity and in all.
type estimates struct {
	mu   *sync.Mutex
	of   map[string]int
	all  int
	free chan struct{} // closed when some is released
}

func newEstimates() estimates {
	return estimates{mu: &sync.Mutex{}, of: map[string]int{}, free: make(chan struct{})}
}

// reserve counts the memory for the body of a request. If the sender itself has too much under
// way, it fails at once; for others it waits.
func (s *Server) reserve(ctx context.Context, principal string, cost int) error {
	late := time.NewTimer(buildWait)
	defer late.Stop()
	for {
		fits, have, free := s.built.take(principal, cost)
		switch {
		case fits:
			return nil
		case have > 0 && have+cost > maxBuilt:
			return Errorf(Busy, "too many requests at once: those under way take %d MiB", have>>20)
		}
		select {
		case <-free:
		case <-late.C:
			return Errorf(Busy, "too many large requests of others are under way")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take counts cost if it fits. It returns how much the principal has, and a channel that is
// closed when more may fit.
func (l *estimates) take(principal string, cost int) (fits bool, have int, free <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have = l.of[principal]
	own, all := have+cost, l.all+cost
	switch {
	case have > 0 && own > maxBuilt:
	case own <= modestPart, all <= maxBuiltOfAll-lastPart, own <= largePart && all <= maxBuiltOfAll:
		l.of[principal], l.all = own, all
		return true, own, nil
	}
	return false, have, l.free
}

func (s *Server) unreserve(principal string, cost int) {
	if cost > 0 {
		s.built.give(principal, cost)
	}
}

func (l *estimates) give(principal string, cost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[principal] -= cost; l.of[principal] <= 0 {
		delete(l.of, principal)
	}
	l.all -= cost
	close(l.free)
	l.free = make(chan struct{})
}
