package master

import (
	"sync"

	"github.com/brinebus/brine/internal/salt"
)

// keyWaiters are those who asked whether their key is accepted, by the id that they
// claim: one question of each connection.
type keyWaiters struct {
	mu  sync.Mutex
	ids map[salt.MinionID]map[string]chan struct{} // by inbox
}

// wait returns a channel that gets a signal after each change of a key of id. first is
// false, and nothing waits, if the connection waits already.
func (w *keyWaiters) wait(id salt.MinionID, inbox string) (changes <-chan struct{}, stop func(), first bool) {
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

func (w *keyWaiters) leave(id salt.MinionID, inbox string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ids[id], inbox)
	if len(w.ids[id]) == 0 {
		delete(w.ids, id)
	}
}

// wake signals those whom changes concern.
func (w *keyWaiters) wake(changes []change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, change := range changes {
		for _, c := range w.ids[change.id] {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}
