package keyring

import (
	"sync"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Waiters are the connections that have asked whether their key is accepted, by the claimed id:
// one question each.
type Waiters struct {
	mu  sync.Mutex
	ids map[salt.MinionID]map[string]chan struct{} // by inbox
}

// Wait returns a channel that gets a signal after each change of a key of id. If the connection
// is waiting already, first is false and nothing is added.
func (w *Waiters) Wait(id salt.MinionID, inbox string) (changes <-chan struct{}, stop func(), first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ids[id][inbox] != nil {
		return nil, nil, false
	}
	if w.ids == nil {
		w.ids = map[salt.MinionID]map[string]chan struct{}{}
	}
	if w.ids[id] == nil {
		w.ids[id] = map[string]chan struct{}{}
	}
	c := make(chan struct{}, 1)
	w.ids[id][inbox] = c
	return c, func() { w.leave(id, inbox) }, true
}

func (w *Waiters) leave(id salt.MinionID, inbox string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ids[id], inbox)
	if len(w.ids[id]) == 0 {
		delete(w.ids, id)
	}
}

// Wake signals those who wait for keys that have changed, or were seen to be touched: a key that was
// deleted and waits again within a moment, or the other way round, is no change in the end, but who
// waits has to be told, and to show the key again.
func (w *Waiters) Wake(seen pki.Seen, changes []Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seen.All {
		for id := range w.ids {
			w.wake(id)
		}
		return
	}
	for id := range seen.IDs {
		w.wake(id)
	}
	for _, change := range changes {
		w.wake(change.ID)
	}
}

// wake signals the waiters of one id. The caller holds mu.
func (w *Waiters) wake(id salt.MinionID) {
	for _, c := range w.ids[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
