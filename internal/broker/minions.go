package broker

import (
	"slices"

	"github.com/brinebus/brine/internal/bus"
)

// minions are the connections of the daemons of minions by their ids, so that who needs those of
// one minion, at each hello, does not look at all. A minion has few: its key has a limit. The caller
// has a lock.
type minions[P comparable] map[string][]P

func (m minions[P]) add(i bus.Identity, p P) {
	if i.Role == bus.RoleMinion {
		m[i.Name] = append(m[i.Name], p)
	}
}

func (m minions[P]) remove(i bus.Identity, p P) {
	if i.Role != bus.RoleMinion {
		return
	}
	if m[i.Name] = slices.DeleteFunc(m[i.Name], func(other P) bool { return other == p }); len(m[i.Name]) == 0 {
		delete(m, i.Name)
	}
}

// Minions are the connections of the daemons of minions.
type Minions struct {
	of    func(id string, f func(i bus.Identity, cut func()))
	count func() int
}

// Of calls f for the connections of one minion, with a function that cuts each. It does not look at
// others.
func (m *Minions) Of(id string, f func(i bus.Identity, cut func())) { m.of(id, f) }

// Count returns how many minions have a connection.
func (m *Minions) Count() int { return m.count() }

func minionsOf(b *Broker) *Minions {
	of := func(id string, f func(bus.Identity, func())) { eachConnection(b, b.auth.ofMinion(id), f) }
	return &Minions{of, b.auth.countMinions}
}

func minionsOfExternal(x *External) *Minions {
	of := func(id string, f func(bus.Identity, func())) {
		found := map[place]bus.Identity{}
		x.mu.Lock()
		for _, p := range x.minions[id] {
			found[p] = x.in[p].Identity
		}
		x.mu.Unlock()
		for p, i := range found {
			f(i, func() { x.cut(p) })
		}
	}
	count := func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.minions)
	}
	return &Minions{of, count}
}
