package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of the large batches that may be under way to the master at a time. A message is in
// memory several times while it is read, checked and stored: a thousand minions that each
// return a megabyte at once would take gigabytes.
const (
	capacityBytes = 32 << 20
	leaseTime     = time.Minute // plus a second for each slowest bytes: how long a lease may be used
	// giveWay is how long a minion may keep an unused lease while others wait: a minion that
	// requests capacity and sends nothing must not block others.
	giveWay = 5 * time.Second
)

// slowest is the minimum rate, in bytes a second, that both ends count on.
const slowest = 256 << 10

// capacity is the memory for large batches, given in the order of requests. A batch that is
// larger than all of it gets it alone.
type capacity struct {
	mu     sync.Mutex
	free   int64
	queue  []*lease
	leases map[salt.MinionID]*lease
	asking map[salt.MinionID]*lease // the latest request that is not granted yet
}

// lease is the part of the capacity that one minion has, or waits for.
type lease struct {
	bytes int64
	given chan struct{} // closed when it is granted
	used  chan struct{} // closed when its batch is stored
	gone  chan struct{} // closed when its minion has sent another request
}

func newCapacity() *capacity {
	return &capacity{free: capacityBytes, leases: map[salt.MinionID]*lease{}, asking: map[salt.MinionID]*lease{}}
}

// ask queues a request for capacity.
func (c *capacity) ask(bytes int64) *lease {
	l := &lease{bytes: min(max(bytes, 0), capacityBytes), given: make(chan struct{}), used: make(chan struct{}), gone: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, l)
	c.serve()
	return l
}

// askFor is ask for a minion, whose latest request counts: one that sends many has one place in
// the queue.
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

// finish is called when a request is answered or given up.
func (c *capacity) finish(id salt.MinionID, l *lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking[id] == l {
		delete(c.asking, id)
	}
}

// wanted reports whether anybody waits.
func (c *capacity) wanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) > 0
}

// serve grants free capacity in order.
func (c *capacity) serve() {
	for len(c.queue) > 0 && c.queue[0].bytes <= c.free {
		l := c.queue[0]
		c.queue = c.queue[1:]
		c.free -= l.bytes
		close(l.given)
	}
}

// giveBack ends a lease, even one that was not granted yet.
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

// hold records which minion's batch uses the lease; its previous lease is released.
func (c *capacity) hold(id salt.MinionID, l *lease) {
	c.stored(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[id] = l
}

// stored records that the batch of a minion was handled.
func (c *capacity) stored(id salt.MinionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.leases[id]; l != nil {
		close(l.used)
		delete(c.leases, id)
	}
}

// Reserve answers OpCapacity when there is capacity for a batch, and keeps it until the batch
// arrives.
func (r *Receiver) Reserve(ctx context.Context, req *rpc.Request) error {
	var q Capacity
	if err := req.Decode(&q); err != nil {
		return err
	}
	id := salt.MinionID(req.From.Name)
	l := r.capacity.askFor(id, q.Bytes)
	defer r.capacity.giveBack(l)
	req.Waits() // until the batch has come, which is begun when it comes
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

// await returns when a lease is granted.
func (c *capacity) await(ctx context.Context, id salt.MinionID, l *lease) error {
	defer c.finish(id, l)
	select {
	case <-l.given:
		return nil
	case <-l.gone:
		return rpc.Errorf(rpc.Busy, "capacity was requested twice")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keep returns when a granted lease was used, or its time is over.
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
