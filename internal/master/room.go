package master

import (
	"context"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// The bounds of what may be under way to the master in large letters at a time.
// A letter is held several times while it is read, checked and stored: a thousand
// minions that return a megabyte at once would take gigabytes.
const (
	roomBytes = 32 << 20
	leaseTime = time.Minute // and a second for each slowest bytes: to use what was given
	slowest   = 256 << 10
)

// room is memory that large letters take turns for, in the order of asking. A
// letter that is larger than all of it has it alone.
type room struct {
	mu     sync.Mutex
	free   int64
	queue  []*lease
	leases map[salt.MinionID]*lease
}

// lease is the part of the room that one minion has, or waits for.
type lease struct {
	bytes int64
	given chan struct{} // closed when it has it
	used  chan struct{} // closed when its letters are stored
}

func newRoom() *room { return &room{free: roomBytes, leases: map[salt.MinionID]*lease{}} }

// ask takes a place in the queue.
func (r *room) ask(bytes int64) *lease {
	l := &lease{bytes: min(max(bytes, 0), roomBytes), given: make(chan struct{}), used: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, l)
	r.serve()
	return l
}

// serve gives what is free to those who are first.
func (r *room) serve() {
	for len(r.queue) > 0 && r.queue[0].bytes <= r.free {
		l := r.queue[0]
		r.queue = r.queue[1:]
		r.free -= l.bytes
		close(l.given)
	}
}

// giveBack ends a lease, also one that was not given yet.
func (r *room) giveBack(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-l.given:
		r.free += l.bytes
	default:
		for i, waiting := range r.queue {
			if waiting == l {
				r.queue = append(r.queue[:i:i], r.queue[i+1:]...)
				break
			}
		}
	}
	r.serve()
}

// hold notes whose letters use the lease; what the minion had before is used.
func (r *room) hold(id salt.MinionID, l *lease) {
	r.stored(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[id] = l
}

// stored says that the letters of a minion are dealt with.
func (r *room) stored(id salt.MinionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.leases[id]; l != nil {
		close(l.used)
		delete(r.leases, id)
	}
}

// makeRoom answers a minion when there is room for its letters, and keeps it until
// they came.
func (m *Master) makeRoom(ctx context.Context, r *bus.Request) error {
	var q protocol.Room
	if err := r.Decode(&q); err != nil {
		return err
	}
	l := m.room.ask(q.Bytes)
	defer m.room.giveBack(l)
	select {
	case <-l.given:
	case <-ctx.Done():
		return ctx.Err()
	}
	id := salt.MinionID(r.From.Name)
	m.room.hold(id, l)
	if err := r.Send(ctx, protocol.Room{Bytes: l.bytes}); err != nil {
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
