package eventbus

import (
	"context"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// heldBy names a dead letter that a program has taken: the inbox of its connection, and what it has
// asked for.
type heldBy struct {
	inbox, name, journal string
	seq                  uint64
}

func heldByOf(inbox string, q protocol.Dead) heldBy { return heldBy{inbox, q.Name, q.Journal, q.Seq} }

// hold is a dead letter that a program handles again. It lives as long as the request that has taken
// it: when its connection ends, the dead letter is free.
type hold struct {
	end  chan ending
	over chan struct{} // closed when it is not held any more
}

// ending is how a program ends a hold.
type ending struct {
	handled bool
	done    chan error // of what follows from it; has room for one
}

// hold takes a dead letter for the caller, until endHold or the end of the request.
func (s *DeadLetters) hold(ctx context.Context, req *rpc.Request, who eventacl.Principal, q protocol.Dead) error {
	if q.Name == "" || q.Seq == 0 {
		return rpc.Errorf(rpc.Usage, "one dead letter is taken at a time, by its handler and its sequence")
	}
	heads, err := s.matching(ctx, who, q)
	if err != nil || len(heads) == 0 {
		return err
	}
	p := heads[0]
	k, err := s.take(ctx, letterKey(p.owner, p.name, p.journal, p.seq))
	if k == nil {
		return err
	}
	id, h := heldByOf(req.Inbox(), q), &hold{end: make(chan ending), over: make(chan struct{})}
	s.mu.Lock()
	s.holds[id] = h // nobody else has it
	s.mu.Unlock()
	within, stop := k.Context(ctx)
	defer stop()
	free := func() {
		s.mu.Lock()
		delete(s.holds, id)
		s.mu.Unlock()
		close(h.over)
	}
	if err := req.Send(ctx, k.Letter); err != nil {
		free()
		k.Release()
		return err
	}
	select {
	case e := <-h.end:
		free()
		if e.handled {
			e.done <- k.Done(ctx)
		} else {
			k.Release()
			e.done <- nil
		}
		return nil
	case <-within.Done():
		free()
		k.Release()
	}
	if ctx.Err() == nil {
		return rpc.Errorf(rpc.Unavailable, "the dead letter is not held any more: %v", context.Cause(within))
	}
	return context.Cause(ctx)
}

// endHold ends what a connection has taken: it was handled, or is given back.
func (s *DeadLetters) endHold(ctx context.Context, inbox string, q protocol.Dead) error {
	e := ending{q.Do == protocol.DeadHandled, make(chan error, 1)}
	s.mu.Lock()
	h := s.holds[heldByOf(inbox, q)]
	s.mu.Unlock()
	if h != nil {
		select {
		case h.end <- e:
			select {
			case err := <-e.done:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case <-h.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !e.handled {
		return nil
	}
	return rpc.Errorf(rpc.Unavailable, "it was handled, but stays a dead letter: this program does not hold it any more")
}
