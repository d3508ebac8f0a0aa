package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// The bounds of what may be under way to the master in large batches at a time.
// A message is held several times while it is read, checked and stored: a thousand
// minions that return a megabyte at once would take gigabytes.
const (
	capacityBytes = 32 << 20
	leaseTime     = time.Minute // and a second for each slowest bytes: to use what was given
)

// slowest is how many bytes a second both ends count on at least.
const slowest = 256 << 10

// capacity is memory that large batches take turns for, in the order of asking. A
// batch that is larger than all of it has it alone.
type capacity struct {
	mu     sync.Mutex
	free   int64
	queue  []*lease
	leases map[salt.MinionID]*lease
}

// lease is the part of the capacity that one minion has, or waits for.
type lease struct {
	bytes int64
	given chan struct{} // closed when it has it
	used  chan struct{} // closed when its batch is stored
}

func newCapacity() *capacity {
	return &capacity{free: capacityBytes, leases: map[salt.MinionID]*lease{}}
}

// ask queues for capacity.
func (c *capacity) ask(bytes int64) *lease {
	l := &lease{bytes: min(max(bytes, 0), capacityBytes), given: make(chan struct{}), used: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, l)
	c.serve()
	return l
}

// serve gives what is free to those who are first.
func (c *capacity) serve() {
	for len(c.queue) > 0 && c.queue[0].bytes <= c.free {
		l := c.queue[0]
		c.queue = c.queue[1:]
		c.free -= l.bytes
		close(l.given)
	}
}

// giveBack ends a lease, also one that was not given yet.
func (c *capacity) giveBack(l *lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-l.given:
		c.free += l.bytes
	default:
		for i, waiting := range c.queue {
			if waiting == l {
				c.queue = append(c.queue[:i:i], c.queue[i+1:]...)
				break
			}
		}
	}
	c.serve()
}

// hold notes whose batch uses the lease; what the minion had before is used.
func (c *capacity) hold(id salt.MinionID, l *lease) {
	c.stored(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[id] = l
}

// stored says that the batch of a minion is dealt with.
func (c *capacity) stored(id salt.MinionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.leases[id]; l != nil {
		close(l.used)
		delete(c.leases, id)
	}
}

// Reserve answers OpCapacity when there is capacity for a batch, and keeps it until the
// batch came.
func (r *Receiver) Reserve(ctx context.Context, req *rpc.Request) error {
	var q Capacity
	if err := req.Decode(&q); err != nil {
		return err
	}
	l := r.capacity.ask(q.Bytes)
	defer r.capacity.giveBack(l)
	select {
	case <-l.given:
	case <-ctx.Done():
		return ctx.Err()
	}
	id := salt.MinionID(req.From.Name)
	r.capacity.hold(id, l)
	if err := req.Send(ctx, Capacity{Bytes: l.bytes}); err != nil {
		return err
	}
	limit := time.NewTimer(leaseTime + time.Duration(l.bytes/slowest)*time.Second)
	defer limit.Stop()
	select {
	case <-l.used:
	case <-limit.C:
	case <-ctx.Done():
	}
	return nil
}
