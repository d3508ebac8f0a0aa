package broker

import "sync"

// turns lets a bounded number of connections use CPU time at once, and shares the turns between
// ports, and those of a port between hosts: the next turn goes to another port, and there to another
// host, however many connections of the first are waiting. So a flood at one port makes a
// connection at another one wait for one turn. One that waits costs a goroutine.
type turns struct {
	mu     sync.Mutex
	free   int
	queues map[*acceptor]*queue // of ports with waiting connections
	ports  []*acceptor          // the same, the next one first
}

// queue are the waiting connections of a port.
type queue struct {
	of    map[string][]*turn
	hosts []string // with waiting connections, the next one first
}

// turn is a connection that waits for its turn.
type turn struct {
	granted chan struct{}
	given   bool // guarded by the mutex of turns, as is dead
	dead    bool
}

func newTurns(n int) *turns { return &turns{free: n, queues: map[*acceptor]*queue{}} }

// take waits for a turn, and reports whether it came before gone was closed.
func (t *turns) take(port *acceptor, host string, gone <-chan struct{}) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	w := &turn{granted: make(chan struct{})}
	q := t.queues[port]
	if q == nil {
		q = &queue{of: map[string][]*turn{}}
		t.queues[port] = q
		t.ports = append(t.ports, port)
	}
	if len(q.of[host]) == 0 {
		q.hosts = append(q.hosts, host)
	}
	q.of[host] = append(q.of[host], w)
	t.mu.Unlock()
	select {
	case <-w.granted:
		return true
	case <-gone:
	}
	t.mu.Lock()
	given := w.given
	w.dead = true
	t.mu.Unlock()
	if given {
		t.give()
	}
	return false
}

// give passes a turn on.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.ports) > 0 {
		w := t.next()
		if w.dead {
			continue
		}
		w.given = true
		close(w.granted)
		return
	}
	t.free++
}

// next removes the next turn from its queue. The caller holds the lock.
func (t *turns) next() *turn {
	port := t.ports[0]
	t.ports = t.ports[1:]
	q := t.queues[port]
	w := q.next()
	if len(q.hosts) > 0 {
		t.ports = append(t.ports, port)
	} else {
		delete(t.queues, port)
	}
	return w
}

func (q *queue) next() *turn {
	host := q.hosts[0]
	q.hosts = q.hosts[1:]
	waiting := q.of[host]
	if len(waiting) > 1 {
		q.of[host] = waiting[1:]
		q.hosts = append(q.hosts, host)
	} else {
		delete(q.of, host)
	}
	return waiting[0]
}
