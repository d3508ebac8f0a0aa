package broker

import (
	"slices"

	"github.com/brinebus/brine/internal/bus"
)

// minions are the connections of minions by their ids, so that who needs those of one minion, at each hello and at each
// change of its key, does not look at all. A minion has few: its key has a limit. The caller has a lock.
type minions[P comparable] struct {
	daemons map[string][]P
	callers map[string][]P // of salt-call on their machines
}

func newMinions[P comparable]() minions[P] { return minions[P]{map[string][]P{}, map[string][]P{}} }

// in returns the index that has connections of this role, nil for none.
func (m minions[P]) in(role bus.Role) map[string][]P {
	switch role {
	case bus.RoleMinion:
		return m.daemons
	case bus.RoleCaller:
		return m.callers
	}
	return nil
}

func (m minions[P]) add(i bus.Identity, p P) {
	if index := m.in(i.Role); index != nil {
		index[i.Name] = append(index[i.Name], p)
	}
}

func (m minions[P]) remove(i bus.Identity, p P) {
	index := m.in(i.Role)
	if index == nil {
		return
	}
	if index[i.Name] = slices.DeleteFunc(index[i.Name], func(other P) bool { return other == p }); len(index[i.Name]) == 0 {
		delete(index, i.Name)
	}
}

// of returns the connections of a minion that have one of the roles.
func (m minions[P]) of(id string, roles []bus.Role) (list []P) {
	for _, role := range roles {
		list = append(list, m.in(role)[id]...)
	}
	return list
}

// Minions are the connections of minions.
type Minions struct {
	of    func(id string, roles []bus.Role, f func(i bus.Identity, cut func()))
	count func() int
}

// Of calls f for the connections of the daemon of one minion, with a function that cuts each. It does not look at
// others.
func (m *Minions) Of(id string, f func(i bus.Identity, cut func())) {
	m.of(id, []bus.Role{bus.RoleMinion}, f)
}

// WithCallers is like Of, also for those of salt-call, which has the key of the minion, too.
func (m *Minions) WithCallers(id string, f func(i bus.Identity, cut func())) {
	m.of(id, []bus.Role{bus.RoleMinion, bus.RoleCaller}, f)
}

// Count returns how many minions have a connection of their daemon.
func (m *Minions) Count() int { return m.count() }

func minionsOf(b *Broker) *Minions {
	of := func(id string, roles []bus.Role, f func(bus.Identity, func())) {
		eachConnection(b, b.auth.ofMinion(id, roles...), f)
	}
	return &Minions{of, b.auth.countMinions}
}

func minionsOfExternal(x *External) *Minions {
	of := func(id string, roles []bus.Role, f func(bus.Identity, func())) {
		found := map[place]bus.Identity{}
		x.mu.Lock()
		for _, p := range x.minions.of(id, roles) {
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
		return len(x.minions.daemons)
	}
	return &Minions{of, count}
}
