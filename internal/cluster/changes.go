package cluster

import (
	"container/list"
	"sync"

	"github.com/brinebus/brine/internal/salt"
)

// changes are those of the minions of other members of which Minions is still to be informed, in
// order. That may take its time, with many jobs, and heartbeats do not wait for it. There are two
// at most for a minion at a member: that it went and that it came.
type changes struct {
	mu   sync.Mutex
	all  *list.List // of *change
	came map[at]*list.Element
	went map[at]*list.Element
	wake chan struct{}
}

// at is a minion at a member.
type at struct {
	member string
	id     salt.MinionID
}

type change struct {
	at
	came *Minion // nil if it went
}

func newChanges() *changes {
	return &changes{all: list.New(), came: map[at]*list.Element{}, went: map[at]*list.Element{}, wake: make(chan struct{}, 1)}
}

// add adds a change: came is nil if the minion went. What was not told and has changed again is left
// out.
func (c *changes) add(member string, id salt.MinionID, came *Minion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := at{member, id}
	before := c.came[key]
	switch {
	case came != nil && before != nil:
		before.Value.(*change).came = came
	case came != nil:
		c.came[key] = c.all.PushBack(&change{key, came})
	default:
		if before != nil {
			c.all.Remove(before)
			delete(c.came, key)
		}
		if c.went[key] == nil {
			c.went[key] = c.all.PushBack(&change{key, nil})
		}
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns the oldest change, nil if there is none.
func (c *changes) take() *change {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.all.Front()
	if first == nil {
		return nil
	}
	one := c.all.Remove(first).(*change)
	if one.came == nil {
		delete(c.went, one.at)
	} else {
		delete(c.came, one.at)
	}
	return one
}

// tellMinions informs Minions of changes until the exchange ends.
func (x *Exchange) tellMinions() {
	for x.ctx.Err() == nil {
		switch one := x.changes.take(); {
		case one == nil:
			select {
			case <-x.changes.wake:
			case <-x.ctx.Done():
			}
		case one.came == nil:
			x.opts.Minions.Went(one.member, one.id)
		default:
			x.opts.Minions.Came(one.member, *one.came)
		}
	}
}
