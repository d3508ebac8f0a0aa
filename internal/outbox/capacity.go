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
	// giveWay is how long a minion keeps what it was given and others wait for: one that asks
	// and sends nothing must not keep the batches of others from coming.
	giveWay = 5 * time.Second
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
	asking map[salt.MinionID]*lease // the last that was asked for and is not held yet
}

// lease is the part of the capacity that one minion has, or waits for.
type lease struct {
	bytes int64
	given chan struct{} // closed when it has it
	used  chan struct{} // closed when its batch is stored
	gone  chan struct{} // closed when its minion has asked anew
}

func newCapacity() *capacity {
	return &capacity{free: capacityBytes, leases: map[salt.MinionID]*lease{}, asking: map[salt.MinionID]*lease{}}
}

// ask queues for capacity.
func (c *capacity) ask(bytes int64) *lease {
	l := &lease{bytes: min(max(bytes, 0), capacityBytes), given: make(chan struct{}), used: make(chan struct{}), gone: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, l)
	c.serve()
	return l
}

// askFor is ask for a minion, of which the last question counts: one that asks many times
// stands in the queue once.
func (c *capacity) askFor(id salt.MinionID, bytes int64) *lease {
	l := c.ask(bytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.asking[id]; before != nil {
		close(before.gone)
	}
	c.asking[id] = l
	return l
}

// finish says that a question is answered, or given up.
func (c *capacity) finish(id salt.MinionID, l *lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking[id] == l {
		delete(c.asking, id)
	}
}

// wanted says whether somebody waits.
func (c *capacity) wanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) > 0
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
	id := salt.MinionID(req.From.Name)
	l := r.capacity.askFor(id, q.Bytes)
	defer r.capacity.giveBack(l)
	if err := r.capacity.await(ctx, id, l); err != nil {
		return err
	}
	r.capacity.hold(id, l)
	if err := req.Send(ctx, Capacity{Bytes: l.bytes}); err != nil {
		return err
	}
	r.capacity.keep(ctx, l)
	return nil
}

// await returns when a lease is given.
func (c *capacity) await(ctx context.Context, id salt.MinionID, l *lease) error {
	defer c.finish(id, l)
	select {
	case <-l.given:
		return nil
	case <-l.gone:
		return rpc.Errorf(rpc.Busy, "capacity was asked for once more")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keep returns when a lease that was given is used, or its time is over.
func (c *capacity) keep(ctx context.Context, l *lease) {
	limit := time.NewTimer(leaseTime + time.Duration(l.bytes/slowest)*time.Second)
	defer limit.Stop()
	look := time.NewTicker(giveWay)
	defer look.Stop()
	for {
		select {
		case <-l.used:
			return
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		case <-look.C:
			if c.wanted() {
				return
			}
		}
	}
}
