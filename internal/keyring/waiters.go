package keyring

import (
	"sync"

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

// Wake signals the waiters of changed keys.
func (w *Waiters) Wake(changes []Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, change := range changes {
		for _, c := range w.ids[change.ID] {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}
