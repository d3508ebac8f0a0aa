package broker

import (
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/logging"
)

// Limits for peers that are not authenticated yet. All are lowered when the operating system's
// limit on open files is low, see descriptors.
const (
	// maxHalfOpen is how many connections may be half open, at most half of them from one host.
	// Each costs some 50 KB.
	maxHalfOpen = 1024
	// halfOpenTime is how long a connection may be half open in all. TLS and CONNECT have their
	// own limit, authTimeout each; the rest is for waiting its turn.
	halfOpenTime = 10 * time.Second
	// patience is how long the daemon waits for a peer before the peer may have to give way to
	// others, when there are too many: a few round trips of a distant network.
	patience = 250 * time.Millisecond
	// turnTime is how long a turn lasts at most: what costs CPU time takes a few milliseconds, and
	// what waits for something else, such as a slow disk, must not keep others waiting.
	turnTime = time.Second
	// maxUnaccepted is how many connections may wait for their keys to be accepted, since
	// anybody can make keys. Each costs some 80 KB. Further minions, of a large fleet on its
	// first day, try again. Minions with an accepted key do not count.
	maxUnaccepted = 2000
	// hostShare is the part of these connections that one host gets.
	hostShare = 2
	// acceptPause is how long nothing is accepted after accept has failed.
	acceptPause = 10 * time.Millisecond
)

// acceptor accepts connections from the network, as many as there is room for, and passes them
// to the server.
type acceptor struct {
	listener net.Listener
	serve    func(*arrival)   // returns when the server reads from it
	leave    func(cid uint64) // called when an admitted connection has ended
	throttle logging.Throttle // of refused connections
	log      *slog.Logger
	turns    *turns
	meter    *meter
	limits   descriptors
	members  bool // members of a cluster connect here: the daemon is ready only when they are connected
	wg       sync.WaitGroup

	mu         sync.Mutex
	open       map[*arrival]bool
	halfOpen   *quota
	unaccepted *quota
	stopped    bool
}

func newAcceptor(l net.Listener, limits descriptors, m *meter, log *slog.Logger) *acceptor {
	return &acceptor{
		listener: l, log: log, limits: limits, meter: m, turns: newTurns(max(1, runtime.GOMAXPROCS(0)-1)), open: map[*arrival]bool{},
		halfOpen: newQuota(limits.halfOpen, max(1, limits.halfOpen/hostShare)), unaccepted: newQuota(limits.unaccepted, max(1, limits.unaccepted/hostShare)),
	}
}

// accept takes connections until the listener is closed.
func (p *acceptor) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.stumbled(err)
			continue
		}
		if a := p.arrive(c); a != nil {
			p.wg.Go(func() { p.serve(a) })
		}
	}
}

// stumbled handles a failed accept, usually for lack of descriptors: it closes half-open
// connections that are silent.
func (p *acceptor) stumbled(err error) {
	p.throttle.Log(p.log, slog.LevelError, "accept", 1, "connections cannot be taken for the moment", "err", err)
	p.mu.Lock()
	victim := p.halfOpen.surplus(0, (*arrival).silent)
	p.mu.Unlock()
	if victim != nil {
		victim.drop()
	}
	time.Sleep(acceptPause)
}

// arrive counts a connection and returns it, or nil if there is no room for it.
func (p *acceptor) arrive(c net.Conn) *arrival {
	a := &arrival{Conn: c, acceptor: p, host: hostGroup(c.RemoteAddr()), gone: make(chan struct{})}
	a.waiting.Store(time.Now().UnixNano())
	a.timer = time.AfterFunc(halfOpenTime, a.drop)
	p.mu.Lock()
	victim, taken := p.take(a)
	p.mu.Unlock()
	if victim != nil {
		p.turnedAway(victim)
	}
	if !taken {
		p.turnedAway(a)
		return nil
	}
	return a
}

// take finds room for a. The caller holds the lock.
func (p *acceptor) take(a *arrival) (victim *arrival, taken bool) {
	if p.stopped {
		return nil, false
	}
	if len(p.open) >= p.limits.connections {
		if victim = p.halfOpen.surplus(p.halfOpen.count(a.host), (*arrival).silent); victim == nil {
			return nil, false
		}
		p.halfOpen.remove(victim)
		p.halfOpen.put(a)
		taken = true
	} else {
		victim, taken = p.halfOpen.add(a, (*arrival).silent)
	}
	if taken {
		p.open[a] = true
	}
	return victim, taken
}

// turnedAway ends a connection for which there is no room. It logs that once a minute, however
// many hosts are involved.
func (p *acceptor) turnedAway(a *arrival) {
	a.drop()
	p.throttle.Log(p.log, slog.LevelWarn, "full", 1, "connections are turned away: too many that have not proven who they are", "host", a.host, "half_open", p.limits.halfOpen)
}

// letIn makes a half-open connection an authenticated one. strange means that its key is not
// accepted: then it stays counted, and may have to give way to a connection of another host.
func (p *acceptor) letIn(a *arrival, strange bool) bool {
	p.mu.Lock()
	p.halfOpen.remove(a)
	var victim *arrival
	taken := !a.ends()
	if strange && taken {
		victim, taken = p.unaccepted.add(a, nobody)
	}
	p.mu.Unlock()
	if victim != nil {
		p.turnedAway(victim)
	}
	if taken {
		a.letIn()
	}
	return taken
}

// left is called when a connection has ended, possibly more than once.
func (p *acceptor) left(a *arrival) {
	p.mu.Lock()
	first := !a.ends()
	var cid uint64
	entered := false
	if first {
		cid, entered = a.end()
		close(a.gone)
		delete(p.open, a)
		if a.quota != nil {
			a.quota.remove(a)
		}
	}
	p.mu.Unlock()
	if !first {
		return
	}
	a.timer.Stop()
	a.giveTurn()
	if entered {
		p.leave(cid)
	}
}

// stop ends every connection that was accepted here.
func (p *acceptor) stop() {
	p.listener.Close()
	p.mu.Lock()
	p.stopped = true
	all := make([]*arrival, 0, len(p.open))
	for a := range p.open {
		all = append(all, a)
	}
	p.mu.Unlock()
	for _, a := range all {
		a.Close()
	}
	p.wg.Wait()
}
