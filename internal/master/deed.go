package master

import (
	"context"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
)

// deeds remember who is about to change a key, until the change is seen: the key
// store is a directory, and a file does not say who moved it.
type deeds struct {
	mu   sync.Mutex
	list map[deedName]deed
}

type deedName struct {
	keyName
	act string
}

type deed struct {
	who  audit.Who
	rule string
	at   time.Time
}

// Bounds of what is remembered: a change is seen within moments.
const (
	deedTime = time.Minute
	maxDeeds = 100_000
)

// expect notes who is about to change a key, and by which rule. act is that of the
// event salt/key.
func (d *deeds) expect(name keyName, act string, who audit.Who, rule string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list == nil || len(d.list) >= maxDeeds {
		d.list = map[deedName]deed{}
	}
	d.list[deedName{name, act}] = deed{who, rule, time.Now()}
}

// take returns who did it. Of a change that nobody has announced it is known only
// where it happened.
func (d *deeds) take(name keyName, act string) deed {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.list[deedName{name, act}]
	delete(d.list, deedName{name, act})
	if !ok || time.Since(one.at) > deedTime {
		return deed{who: audit.Who{Source: "a file in the key directory"}}
	}
	return one
}

// keyDeed notes which operator is about to change keys by files of his own.
func (m *Master) keyDeed(ctx context.Context, r *rpc.Request) error {
	var q protocol.KeyDeed
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := m.localAsker(ctx, r.From)
	for _, k := range q.Keys {
		m.keys.deeds.expect(keyName{k.ID, k.Finger}, q.Act, who.who(), "")
	}
	return nil
}

// by is the key store in the hands of somebody, as runners use it.
func (k *keyring) by(who audit.Who) runner.KeyStore { return &handled{k.store, &k.deeds, who} }

type handled struct {
	*pki.Store
	deeds *deeds
	who   audit.Who
}

func (h *handled) expect(e pki.Entry, act string) { h.deeds.expect(nameOf(e), act, h.who, "") }

// Accept implements runner.KeyStore.
func (h *handled) Accept(e pki.Entry) error {
	h.expect(e, actAccept)
	return h.Store.Accept(e)
}

// Reject implements runner.KeyStore.
func (h *handled) Reject(e pki.Entry) error {
	h.expect(e, actReject)
	return h.Store.Reject(e)
}

// Delete implements runner.KeyStore.
func (h *handled) Delete(e pki.Entry) error {
	h.expect(e, actDelete)
	return h.Store.Delete(e)
}
