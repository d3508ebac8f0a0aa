package master

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/target"
)

// Bounds of finding the minions that a target means.
const (
	// cheapCost is what is done at once, in the units of target.Cost: some milliseconds.
	cheapCost = 100_000
	// longTarget is from where on it takes noticeable time to read an expression, in bytes.
	longTarget = 4 << 10
	// maxEvaluation is how long one target may take. It is looked at before each minion.
	maxEvaluation = 5 * time.Second
)

// turns are taken by what costs much: of each principal one thing at a time, and of all
// together a few, in the order of asking. So what one asks for waits behind its own, and
// what is cheap never waits.
type turns struct {
	mu    sync.Mutex
	of    map[string]*turn
	slots chan struct{}
}

// turn is held by the one thing that a principal does.
type turn struct {
	held  chan struct{} // has room for one
	users int           // that hold it or wait for it
}

func newTurns(slots int) *turns {
	return &turns{of: map[string]*turn{}, slots: make(chan struct{}, slots)}
}

// newEvaluations are those of dear targets, on half of the processors.
func newEvaluations() *turns { return newTurns(max(1, runtime.GOMAXPROCS(0)/2)) }

// begin waits for the turn of who, and for a slot.
func (e *turns) begin(ctx context.Context, who string) (end func(), err error) {
	t := e.join(who)
	select {
	case t.held <- struct{}{}:
	case <-ctx.Done():
		e.leave(who, t)
		return nil, context.Cause(ctx)
	}
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		<-t.held
		e.leave(who, t)
		return nil, context.Cause(ctx)
	}
	return func() {
		<-e.slots
		<-t.held
		e.leave(who, t)
	}, nil
}

func (e *turns) join(who string) *turn {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.of[who]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		e.of[who] = t
	}
	t.users++
	return t
}

func (e *turns) leave(who string, t *turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(e.of, who)
	}
}

// takeTurn waits until who may evaluate a target, if that is dear; t is nil for one that
// cannot be read.
func (m *Master) takeTurn(ctx context.Context, who asker, t *target.Target) (end func(), err error) {
	if t == nil || !t.Backtracks() && t.Cost()*len(m.keys.ids()) <= cheapCost {
		return func() {}, nil
	}
	return m.evaluations.begin(ctx, who.identity.String())
}

// inTime refuses to go on with a target that takes too long.
func inTime(limit time.Time) error {
	if time.Now().Before(limit) {
		return nil
	}
	return bus.Errorf(bus.Usage, "target: %v: %s are not enough", target.ErrTooExpensive, maxEvaluation)
}
