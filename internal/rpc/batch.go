package rpc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/bus"
)

// BatchHandler answers all requests that arrived within a short time at once: for hundreds of
// them, a goroutine and a store access each would cost more than the requests themselves. It
// returns one error for each request, which ends its answer. It must not wait for anything that
// a principal can delay, since all others wait with it: for a request that could take longer it
// returns ErrAlone.
type BatchHandler func(ctx context.Context, batch []*Request) []error

// ErrAlone, returned by a BatchHandler, passes a request to the Handler of its op.
var ErrAlone = errors.New("the request is handled alone")

// maxInBatch is the largest request, in bytes, that is handled in batches.
const maxInBatch = 64 << 10

// HandleBatches registers the handler for small requests; Handle registers one with the same
// name for the others. It is only for requests about the sender's own data, which need no
// decision. It is called before Start.
func (s *Server) HandleBatches(name string, h BatchHandler) {
	for _, e := range s.endpoints {
		if e.Handler == name && e.Check != bus.Own {
			panic("bus: requests that need a decision are not handled in batches: " + e.Op)
		}
	}
	s.batches[name] = &batches{handle: h, alone: s.handlers[name], wake: make(chan struct{}, 1)}
}

// batches are the requests of an op that wait for their BatchHandler.
type batches struct {
	handle BatchHandler
	alone  Handler
	wake   chan struct{}

	mu      sync.Mutex
	waiting []booked
}

// add puts a request into the next batch. It returns false if the request does not go into a
// batch, and for nil.
func (l *batches) add(b booked) bool {
	if l == nil || b.size > maxInBatch {
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

func (l *batches) take() []booked {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.waiting
	l.waiting = nil
	return list
}

// serveBatches starts the batch handlers, which run until Stop.
func (s *Server) serveBatches() {
	for _, l := range s.batches {
		s.wg.Go(func() { s.serveBatch(l) })
	}
}

func (s *Server) serveBatch(l *batches) {
	for ended := false; !ended; {
		select {
		case <-l.wake:
		case <-s.ctx.Done(): // nothing is added any more; waiting requests get an error
			ended = true
		}
		for list := l.take(); len(list) > 0; list = l.take() {
			s.answerBatch(l, list)
		}
	}
}

// answerBatch ends the answers of a batch.
func (s *Server) answerBatch(l *batches, list []booked) {
	errs := s.callBatch(l, list)
	for i, b := range list {
		if errors.Is(errs[i], ErrAlone) {
			s.schedule(b, l.alone)
			continue
		}
		s.serve(b, func(context.Context, *Request) error { return errs[i] })
	}
}

// callBatch calls the handler. If it panics, all requests of the batch have failed.
func (s *Server) callBatch(l *batches, list []booked) (errs []error) {
	batch := make([]*Request, len(list))
	for i, b := range list {
		_ = b.Decide(decision.Own()) // it is the sender's own data, see HandleBatches
		batch[i] = b.Request
	}
	defer func() {
		if p := recover(); p != nil {
			s.throttle.Log(s.log, slog.LevelError, "panic "+batch[0].Op, maxFailed, "request handler failed", "op", batch[0].Op, "requests", len(batch), "panic", p)
			errs = slices.Repeat([]error{errors.New("panic")}, len(batch))
		}
	}()
	return l.handle(s.ctx, batch)
}
