package atomicfile

import "sync"

// Group lets all who come while a sync runs share the next one. The zero value is ready;
// it must not be copied.
type Group struct {
	turns   sync.Mutex
	waiting *turn      // the one that has not begun; nil for none
	running sync.Mutex // held by the one that has
}

// turn is one sync for all who wait for it.
type turn struct {
	done chan struct{}
	err  error
}

// Do returns when sync, which syncs all that was written before it is called, has begun
// after the call of Do and has ended. The error is that of sync.
func (g *Group) Do(sync func() error) error {
	g.turns.Lock()
	if t := g.waiting; t != nil {
		g.turns.Unlock()
		<-t.done
		return t.err
	}
	t := &turn{done: make(chan struct{})}
	g.waiting = t
	g.turns.Unlock()

	g.running.Lock()
	defer g.running.Unlock()
	g.turns.Lock()
	g.waiting = nil // who comes from now on may have written what this one does not cover
	g.turns.Unlock()
	t.err = sync()
	close(t.done)
	return t.err
}
