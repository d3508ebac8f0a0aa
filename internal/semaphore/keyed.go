// Package semaphore provides a semaphore with keys: each key has its own queue, so that many
// requests with one key do not delay the others. It does not know what it protects.
package semaphore

import (
	"context"
	"sync"
	"time"
)

// Keyed is held by at most one holder of each key, and by a limited number of keys together, in the
// order of requests. So requests with the same key wait for each other.
type Keyed struct {
	mu      sync.Mutex
	of      map[string]*lock
	slots   chan struct{}
	waiting int           // keys that wait for a slot
	wanted  chan struct{} // closed while there are any
}

// lock is the lock of one key.
type lock struct {
	held  chan struct{} // capacity 1
	users int           // that hold it or wait for it
}

// New returns a semaphore with this many slots, each for another key.
func New(slots int) *Keyed {
	return &Keyed{of: map[string]*lock{}, slots: make(chan struct{}, slots), wanted: make(chan struct{})}
}

// Acquire waits for the lock of key, and then for a slot, until ctx ends.
func (k *Keyed) Acquire(ctx context.Context, key string) (release func(), err error) {
	l := k.join(key)
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		k.leave(key, l)
		return nil, context.Cause(ctx)
	}
	if err := k.slot(ctx); err != nil {
		<-l.held
		k.leave(key, l)
		return nil, err
	}
	return k.release(key, l), nil
}

// Try is Acquire for whoever does not wait: ok is false if another holds the lock of key, or no slot is free.
func (k *Keyed) Try(key string) (release func(), ok bool) {
	l := k.join(key)
	select {
	case l.held <- struct{}{}:
	default:
		k.leave(key, l)
		return nil, false
	}
	select {
	case k.slots <- struct{}{}:
	default:
		<-l.held
		k.leave(key, l)
		return nil, false
	}
	return k.release(key, l), true
}

// release returns what gives back the lock of key and a slot.
func (k *Keyed) release(key string, l *lock) func() {
	return func() {
		<-k.slots
		<-l.held
		k.leave(key, l)
	}
}

// slot takes a slot, in the order of requests.
func (k *Keyed) slot(ctx context.Context) error {
	select {
	case k.slots <- struct{}{}:
		return nil
	default: // none is free, and earlier waiters come first
	}
	k.want(1)
	defer k.want(-1)
	select {
	case k.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Held returns how many slots are held now. It does not count as waiting, so no holder gives way.
func (k *Keyed) Held() int { return len(k.slots) }

func (k *Keyed) want(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.waiting
	switch k.waiting += n; {
	case was == 0:
		close(k.wanted)
	case k.waiting == 0:
		k.wanted = make(chan struct{})
	}
}

// GiveWay calls f if its caller has held a slot for the time after and another key waits for one,
// unless stop was called before. After stop f does not run.
func (k *Keyed) GiveWay(after time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		late := time.NewTimer(after)
		defer late.Stop()
		select {
		case <-late.C:
		case <-quit:
			return
		}
		k.mu.Lock()
		wanted := k.wanted
		k.mu.Unlock()
		select {
		case <-wanted:
			f()
		case <-quit:
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-done
	})
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
