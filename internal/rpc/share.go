package rpc

import (
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

const (
	// maxSent is how many bytes of all answers to one principal may be under way: the maximum
	// cost of all their readers that read nothing. Further answers wait until something is
	// read, or one of the answers ends, as it does after Stall. As many bytes of all its
	// answers, finished ones included, may wait in the broker, over all connections of the
	// principal: that is counted separately, since small answers need no confirmation, and a
	// receiver may confirm what it has not read. For root and the daemon's own user, who could
	// stop the daemon anyway, only the window of each answer applies.
	maxSent = 4 * Window
	// maxEnds is how many bytes more may be sent at the ends of answers, which do not wait: the
	// handlers of many senders' batches end together. Beyond it a connection is cut.
	maxEnds = 2 * Window
	// lookEvery is how often the broker is asked what a principal has not read. It limits a
	// principal that reads all to maxSent in this time, which no network of ours reaches.
	lookEvery = 50 * time.Millisecond
	// sweepEvery is how often principals that have read everything are forgotten.
	sweepEvery = time.Second
)

// share is what is under way to one principal. nil has no limit.
type share struct {
	unread func(inbox string) int64 // see Server.Unread

	mu      sync.Mutex
	answers int
	sent    int64            // bytes of answers under way that are not confirmed
	waiting map[string]int64 // bytes that may wait in the broker, by inbox
	all     int64            // of these
	flying  map[string]int64 // of these, what is still to be published, by inbox
	looked  time.Time        // when they were compared with the broker's
	free    chan struct{}    // closed when something is read
}

// shareOf registers an answer to the principal. The caller holds the lock.
func (s *Server) shareOf(from bus.Identity, principal string) *share {
	if from.IsOperator() {
		return nil
	}
	sweepShares(s, time.Now())
	own := s.shares[principal]
	if own == nil {
		own = &share{unread: s.Unread, waiting: map[string]int64{}, flying: map[string]int64{}, free: make(chan struct{})}
		s.shares[principal] = own
	}
	own.answers++
	return own
}

// dropShare removes an answer to the principal. What it has not read counts further. The caller
// holds the lock.
func (s *Server) dropShare(principal string) {
	if own := s.shares[principal]; own != nil {
		if own.answers--; own.answers <= 0 && own.size() == 0 {
			delete(s.shares, principal)
		}
	}
}

// sweepShares forgets principals without answers that have read everything, or are gone. The
// caller holds the lock.
func sweepShares(s *Server, now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for principal, own := range s.shares {
		if own.answers <= 0 && own.idle() {
			delete(s.shares, principal)
		}
	}
}

// size returns how many bytes may be unread.
func (s *share) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// idle reports whether nothing is unread.
func (s *share) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.all == 0
}

// look forgets what has been read. What is published may not have reached the broker yet: a
// message and what is in the buffers of the daemon's own connection, some megabytes. It is missing
// until the next look, which finds it at the broker. The caller holds the lock.
func (s *share) look() {
	if s.unread == nil || time.Since(s.looked) < lookEvery {
		return
	}
	before := s.all
	s.all, s.looked = 0, time.Now()
	for inbox := range s.waiting {
		n := s.unread(inbox) + s.flying[inbox]
		if n == 0 {
			delete(s.waiting, inbox)
			continue
		}
		s.waiting[inbox] = n
		s.all += n
	}
	if s.all < before {
		s.wake()
	}
}

// wake tells the answers that wait. The caller holds the lock.
func (s *share) wake() {
	close(s.free)
	s.free = make(chan struct{})
}

// fits reports whether more may be sent. The caller holds the lock.
func (s *share) fits() bool {
	if s.all >= maxSent {
		s.look()
	}
	return s.sent < maxSent && s.all < maxSent
}

// open reports whether more fits.
func (s *share) open() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fits()
}

// take counts n bytes to the connection with this inbox prefix if they fit.
func (s *share) take(inbox string, n int64) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fits() {
		return false
	}
	s.sent += n
	s.add(inbox, n)
	return true
}

// add counts n bytes that the broker gets. The caller holds the lock.
func (s *share) add(inbox string, n int64) {
	if s.unread != nil {
		s.waiting[inbox] += n
		s.flying[inbox] += n
		s.all += n
	}
}

// published says that n bytes of those were given to the broker.
func (s *share) published(inbox string, n int64) {
	if s == nil || s.unread == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying[inbox] -= n; s.flying[inbox] <= 0 {
		delete(s.flying, inbox)
	}
}

// end counts the n bytes of the end of an answer. If the principal has too much unread by then,
// it returns the connection with the most.
func (s *share) end(inbox string, n int64) (deaf string) {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.add(inbox, n); s.all <= maxSent+maxEnds {
		return ""
	}
	if s.look(); s.all <= maxSent+maxEnds {
		return ""
	}
	for one, n := range s.waiting {
		if deaf == "" || n > s.waiting[deaf] {
			deaf = one
		}
	}
	return deaf
}

// give subtracts n bytes of an answer, which are confirmed, or whose answer has ended.
func (s *share) give(n int64) {
	if s == nil || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent -= n
	s.wake()
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

// again returns a channel that says when to look at the broker again; nil if enough may wait
// there.
func (s *share) again() <-chan time.Time {
	if s == nil || s.size() < maxSent {
		return nil
	}
	return time.After(lookEvery)
}

// leave subtracts what the answer had under way: its principal is gone, or its end follows.
func (o *answerer) leave() {
	o.count.Lock()
	defer o.count.Unlock()
	o.share.give(o.sent - o.taken)
	o.taken = o.sent
}

// end counts the message that ends the answer. It returns a connection to cut, since too much
// is unread.
func (o *answerer) end(m *nats.Msg) (deaf string) {
	if m == nil {
		return ""
	}
	return o.share.end(o.inbox, int64(len(m.Data)))
}

// cutDeaf ends a connection that does not read.
func cutDeaf(s *Server, from bus.Identity, inbox string) {
	if inbox == "" || s.Cut == nil {
		return
	}
	s.throttle.Log(s.log, slog.LevelWarn, "deaf "+from.String(), maxFailed, "cutting a connection: it does not read its answers", "from", from.String(), "limit", maxSent+maxEnds)
	s.Cut(inbox)
}
