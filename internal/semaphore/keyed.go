// Package semaphore shares what is scarce between those who ask for it: a semaphore by
// key, so that nobody waits behind what another has asked for many times. It does not
// know what it protects.
package semaphore

import (
	"context"
	"sync"
)

// Keyed is held by one holder of each key at a time, and by a few of all keys together, in
// the order of asking. So what one asks for waits behind its own.
type Keyed struct {
	mu    sync.Mutex
	of    map[string]*lock
	slots chan struct{}
}

// lock is that of one key.
type lock struct {
	held  chan struct{} // has room for one
	users int           // that hold it or wait for it
}

// New returns a semaphore that so many hold at a time, each with another key.
func New(slots int) *Keyed {
	return &Keyed{of: map[string]*lock{}, slots: make(chan struct{}, slots)}
}

// Acquire waits for the turn of key, and for a slot, until ctx ends.
func (k *Keyed) Acquire(ctx context.Context, key string) (release func(), err error) {
	l := k.join(key)
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		k.leave(key, l)
		return nil, context.Cause(ctx)
	}
	select {
	case k.slots <- struct{}{}:
	case <-ctx.Done():
		<-l.held
		k.leave(key, l)
		return nil, context.Cause(ctx)
	}
	return func() {
		<-k.slots
		<-l.held
		k.leave(key, l)
	}, nil
}

func (k *Keyed) join(key string) *lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.of[key]
	if l == nil {
		l = &lock{held: make(chan struct{}, 1)}
		k.of[key] = l
	}
	l.users++
	return l
}

func (k *Keyed) leave(key string, l *lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.of, key)
	}
}
