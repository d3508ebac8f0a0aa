package broker

import (
	"slices"

	"github.com/brinebus/brine/internal/bus"
)

// keys are the connections by their keys. A key has few: there is a limit. The caller has a lock.
type keys[P comparable] map[string][]P

func (k keys[P]) add(key string, p P) { k[key] = append(k[key], p) }

func (k keys[P]) remove(key string, p P) {
	if k[key] = slices.DeleteFunc(k[key], func(other P) bool { return other == p }); len(k[key]) == 0 {
		delete(k, key)
	}
}

// Cuts ends connections without a look at others: anybody can have their own ended, as often as they
// connect.
type Cuts struct{ inbox, unaccepted func(string) }

// Inbox ends the connection with this inbox prefix.
func (c *Cuts) Inbox(inbox string) { c.inbox(inbox) }

// Unaccepted ends the connections of a key that is not accepted.
func (c *Cuts) Unaccepted(key string) { c.unaccepted(key) }

func cutsOf(b *Broker) *Cuts {
	g := b.auth
	inbox := func(inbox string) {
		g.mu.Lock()
		cid, ok := g.inboxes[inbox]
		i := g.in[cid]
		g.mu.Unlock()
		if ok {
			cutConnection(b, cid, i)
		}
	}
	unaccepted := func(key string) {
		eachConnection(b, g.ofKey(key, bus.RoleUnaccepted, bus.RoleGuest), func(_ bus.Identity, cut func()) { cut() })
	}
	return &Cuts{inbox, unaccepted}
}

func cutsOfExternal(x *External) *Cuts {
	inbox := func(inbox string) {
		x.mu.Lock()
		p, ok := x.inboxes[inbox]
		x.mu.Unlock()
		if ok {
			x.cut(p)
		}
	}
	unaccepted := func(key string) {
		x.mu.Lock()
		of := slices.DeleteFunc(slices.Clone(x.perKey[key]), func(p place) bool { return x.in[p].Role != bus.RoleUnaccepted })
		x.mu.Unlock()
		for _, p := range of {
			x.cut(p)
		}
	}
	return &Cuts{inbox, unaccepted}
}
