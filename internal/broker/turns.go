package broker

import "sync"

// turns lets a bounded number of connections use CPU time at once, and shares the turns between
// hosts: the next turn goes to another host, however many connections of the first are waiting.
// One that waits costs a goroutine.
type turns struct {
	mu    sync.Mutex
	free  int
	queue map[string][]*turn
	hosts []string // with waiting connections, the next one first
}

// turn is a connection that waits for its turn.
type turn struct {
	granted chan struct{}
	given   bool // guarded by the mutex of turns, as is dead
	dead    bool
}

func newTurns(n int) *turns { return &turns{free: n, queue: map[string][]*turn{}} }

// take waits for a turn, and reports whether it came before gone was closed.
func (t *turns) take(host string, gone <-chan struct{}) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	w := &turn{granted: make(chan struct{})}
	if len(t.queue[host]) == 0 {
		t.hosts = append(t.hosts, host)
	}
	t.queue[host] = append(t.queue[host], w)
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
	for len(t.hosts) > 0 {
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

// next removes the next turn from the queue. The caller holds the lock.
func (t *turns) next() *turn {
	host := t.hosts[0]
	t.hosts = t.hosts[1:]
	waiting := t.queue[host]
	if len(waiting) > 1 {
		t.queue[host] = waiting[1:]
		t.hosts = append(t.hosts, host)
	} else {
		delete(t.queue, host)
	}
	return waiting[0]
}
