package keyring

import (
	"sync"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/pki"
)

// actions remember who is about to change a key until the change is seen: the key store is a
// directory, and a file does not say who moved it.
type actions struct {
	mu   sync.Mutex
	list map[actionName]action
}

type actionName struct {
	pki.Name
	act string
}

type action struct {
	who  audit.Who
	rule string
	at   time.Time
}

// Limits of what is remembered: a change is seen almost at once.
const (
	actionTime = time.Minute
	maxActions = 100_000
)

// expect records who is about to change a key, and by which rule. act is that of the event
// salt/key.
func (a *actions) expect(name pki.Name, act string, who audit.Who, rule string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.list == nil || len(a.list) >= maxActions {
		a.list = map[actionName]action{}
	}
	a.list[actionName{name, act}] = action{who, rule, time.Now()}
}

// take returns who did it. For an unannounced change only the machine is known.
func (a *actions) take(name pki.Name, act string) action {
	a.mu.Lock()
	defer a.mu.Unlock()
	one, ok := a.list[actionName{name, act}]
	delete(a.list, actionName{name, act})
	if !ok || time.Since(one.at) > actionTime {
		return action{who: audit.Who{Source: "a file in the key directory"}}
	}
	return one
}

// rule returns the rule by which somebody is about to change a key, "" for none. It stays expected.
func (a *actions) rule(name pki.Name, act string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.list[actionName{name, act}]
	if time.Since(one.at) > actionTime {
		return ""
	}
	return one.rule
}

// RuleOf returns the rule by which a key is being changed, "" if that is no rule, or if TakeAction was called for it.
func RuleOf(k *Keyring, name pki.Name, act string) string { return k.actions.rule(name, act) }

// Expect records that somebody is about to change a key through the key files.
func (k *Keyring) Expect(name pki.Name, act string, who audit.Who) {
	k.actions.expect(name, act, who, "")
}

// TakeAction returns who changed a key, and by which rule, "" for none.
func (k *Keyring) TakeAction(name pki.Name, act string) (who audit.Who, rule string) {
	one := k.actions.take(name, act)
	return one.who, one.rule
}

// By returns the key store as runners use it, for changes by who.
func (k *Keyring) By(who audit.Who) *Store {
	return &Store{Store: k.Store, actions: &k.actions, who: who}
}

// Store is the key store for one user: changes made through it are attributed to them.
type Store struct {
	*pki.Store
	actions *actions
	who     audit.Who
	rule    string
}

// Who returns the user.
func (h *Store) Who() audit.Who { return h.who }

// Under returns the same store for what a rule has decided, "" for none.
func (h *Store) Under(rule string) *Store {
	under := *h
	under.rule = rule
	return &under
}

func (h *Store) expect(e pki.Entry, act string) { h.actions.expect(e.Name(), act, h.who, h.rule) }

// Accept is that of pki.Store.
func (h *Store) Accept(e pki.Entry) error {
	h.expect(e, Accept)
	return h.Store.Accept(e)
}

// Reject is that of pki.Store.
func (h *Store) Reject(e pki.Entry) error {
	h.expect(e, Reject)
	return h.Store.Reject(e)
}

// Delete is that of pki.Store.
func (h *Store) Delete(e pki.Entry) error {
	h.expect(e, Delete)
	return h.Store.Delete(e)
}
