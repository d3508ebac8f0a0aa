package rpc

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/bus"
)

// LotHandler answers requests that came one soon after the other, all at once: of
// hundreds a goroutine each, and a word with the store each, would cost more than what
// they ask for. What it returns, one for each request, ends the answers. It must wait for
// nothing that an asker has a hand in, since all others wait with it: what could
// take longer gets ErrAlone.
type LotHandler func(ctx context.Context, lot []*Request) []error

// ErrAlone of a LotHandler leaves a request to the Handler of its op.
var ErrAlone = errors.New("the request is handled alone")

// maxInLot is the size in bytes of a request that is handled in lots.
const maxInLot = 64 << 10

// HandleLots registers the handler of small requests, beside the one of that name that
// Handle registers for what is left to it. Only what is the sender's own is handled so:
// there is nothing to decide. It is called before Start.
func (s *Server) HandleLots(name string, h LotHandler) {
	for _, e := range s.endpoints {
		if e.Handler == name && e.Check != bus.Own {
			panic("bus: requests that need a decision are not handled in lots: " + e.Op)
		}
	}
	s.lots[name] = &lots{handle: h, alone: s.handlers[name], wake: make(chan struct{}, 1)}
}

// lots are the requests of an op that wait for their LotHandler.
type lots struct {
	handle LotHandler
	alone  Handler
	wake   chan struct{}

	mu      sync.Mutex
	waiting []booked
}

// add puts a request into the next lot. It returns false, also for nil, if the request
// belongs into none.
func (l *lots) add(b booked) bool {
	if l == nil || len(b.Body) > maxInLot {
		return false
	}
	l.mu.Lock()
	l.waiting = append(l.waiting, b)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return true
}

func (l *lots) take() []booked {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.waiting
	l.waiting = nil
	return list
}

// serveLots begins to serve what is handled in lots, until Stop.
func (s *Server) serveLots() {
	for _, l := range s.lots {
		s.wg.Go(func() { s.serveLot(l) })
	}
}

func (s *Server) serveLot(l *lots) {
	for ended := false; !ended; {
		select {
		case <-l.wake:
		case <-s.ctx.Done(): // nothing is added any more; what waits is told so
			ended = true
		}
		for list := l.take(); len(list) > 0; list = l.take() {
			s.answerLot(l, list)
		}
	}
}

// answerLot ends the answers of a lot.
func (s *Server) answerLot(l *lots, list []booked) {
	errs := s.callLot(l, list)
	for i, b := range list {
		if errors.Is(errs[i], ErrAlone) {
			s.schedule(b, l.alone)
			continue
		}
		s.serve(b, func(context.Context, *Request) error { return errs[i] })
	}
}

// callLot calls the handler. One that panics has failed for all of the lot.
func (s *Server) callLot(l *lots, list []booked) (errs []error) {
	lot := make([]*Request, len(list))
	for i, b := range list {
		_ = b.Decide(decision.Own()) // it is the sender's own, see HandleLots
		lot[i] = b.Request
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("request handler failed", "op", lot[0].Op, "requests", len(lot), "panic", p)
			errs = slices.Repeat([]error{errors.New("panic")}, len(lot))
		}
	}()
	return l.handle(s.ctx, lot)
}
