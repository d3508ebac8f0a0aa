package broker

import (
	"container/list"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/posix"
)

// lifetime is what is counted for a connection while it is open: a connection is entered before
// it ends, or never.
type lifetime struct {
	mu      sync.Mutex
	ended   bool
	entered bool
	cid     uint64 // the server's connection number, once entered

	share atomic.Pointer[inflow] // of the bytes under way to the daemon, once entered
}

// metered reads from the peer of a connection when its share allows it. Until then, what the
// peer sends waits in the kernel, and then at the peer.
func (t *lifetime) metered(m *meter, gone <-chan struct{}, from io.Reader, b []byte) (int, error) {
	s := t.share.Load()
	if s == nil {
		return from.Read(b)
	}
	m.waitOne(s, gone)
	n, err := from.Read(b)
	m.took(s.flow, n)
	return n, err
}

// enter reports whether the connection is still alive and can be entered.
func (t *lifetime) enter(cid uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	t.entered, t.cid = true, cid
	return true
}

// end reports whether this is the first end of a connection that was entered.
func (t *lifetime) end() (cid uint64, entered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entered = t.entered && !t.ended
	t.ended = true
	return t.cid, entered
}

// arrival is a connection of the network, from accept to its end. Until it is let in it is half
// open: what costs the daemon CPU time, the TLS handshake and the check of its key, waits for
// its turn.
type arrival struct {
	net.Conn
	lifetime
	host     string // that it is counted for
	acceptor *acceptor
	gone     chan struct{} // closed at its end
	timer    *time.Timer   // ends it if it is not let in

	in      atomic.Bool  // it was let in
	limited atomic.Bool  // by a deadline for writing
	turn    atomic.Bool  // it has a turn
	overdue *time.Timer  // takes the turn away; only Read sets it
	waiting atomic.Int64 // since when the daemon waits for the peer; 0 if it does not

	quota *quota // from here on guarded by the lock of acceptor
	spot  *list.Element
}

// address is the peer's address; the authenticator finds the arrival by it.
type address struct {
	net.Addr
	arrival *arrival
}

// RemoteAddr implements net.Conn.
func (a *arrival) RemoteAddr() net.Addr { return address{a.Conn.RemoteAddr(), a} }

// Read waits for the peer and then, until the connection is let in, for its turn. Afterwards it
// reads no more than the connection's share.
func (a *arrival) Read(b []byte) (int, error) {
	if a.in.Load() {
		return a.metered(a.acceptor.meter, a.gone, a.Conn, b)
	}
	a.giveTurn()
	a.waiting.Store(time.Now().UnixNano())
	n, err := a.Conn.Read(b)
	a.waiting.Store(0)
	if err != nil || a.in.Load() {
		return n, err
	}
	if !a.acceptor.turns.take(a.acceptor, a.host, a.gone) {
		return 0, net.ErrClosed
	}
	a.turn.Store(true)
	if a.overdue == nil {
		a.overdue = time.AfterFunc(turnTime, a.giveTurn)
	} else {
		a.overdue.Reset(turnTime)
	}
	if a.ends() {
		a.giveTurn()
	}
	return n, nil
}

// errUnread ends a half-open connection whose peer makes the daemon send and does not read.
var errUnread = errors.New("the peer does not read what it is sent")

// Write sends to the peer. A half-open connection is sent so little that it all finds room in the
// kernel, unless the peer asks for more, such as new keys for TLS, and does not read: then it is
// ended, since a Write that waits would keep its turn from others.
func (a *arrival) Write(b []byte) (int, error) {
	if a.in.Load() {
		return a.writeIn(b)
	}
	c, ok := a.Conn.(*net.TCPConn)
	if !ok {
		return a.Conn.Write(b)
	}
	n, err := a.writeNow(c, b)
	if errors.Is(err, errUnread) {
		a.drop()
	}
	return n, err
}

// unreadLimit is how long an authenticated peer may take to read what TLS sends while it reads, such as
// new keys. The server has its own deadlines for all else that it sends.
const unreadLimit = 10 * time.Second

// writeIn is Write after the connection was let in. Without a deadline a connection that the server
// ends meanwhile would stay open, and use a descriptor, for as long as its peer wants: the end waits
// for that Write.
func (a *arrival) writeIn(b []byte) (int, error) {
	if a.limited.Load() {
		return a.Conn.Write(b)
	}
	_ = a.Conn.SetWriteDeadline(time.Now().Add(unreadLimit)) // the error is that of the write, too
	n, err := a.Conn.Write(b)
	if err != nil {
		a.drop()
	}
	return n, err
}

// SetWriteDeadline implements net.Conn.
func (a *arrival) SetWriteDeadline(t time.Time) error {
	a.limited.Store(!t.IsZero())
	return a.Conn.SetWriteDeadline(t)
}

// writeNow writes what the kernel takes at once. If that is not everything, it returns errUnread. Where the system cannot do
// that, the peer has unreadLimit.
func (a *arrival) writeNow(c *net.TCPConn, b []byte) (int, error) {
	n, err := posix.WriteNow(c, b)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return a.writeIn(b)
	case err == nil && n < len(b):
		return n, errUnread
	}
	return n, err
}

// giveTurn gives the turn back, if it has one. A timer of an earlier turn may call it too early, which
// only lets one more work for a moment.
func (a *arrival) giveTurn() {
	if a.turn.CompareAndSwap(true, false) {
		a.acceptor.turns.give()
	}
}

func (a *arrival) ends() bool {
	select {
	case <-a.gone:
		return true
	default:
		return false
	}
}

// letIn makes it an ordinary connection.
func (a *arrival) letIn() {
	a.timer.Stop()
	a.in.Store(true)
	a.giveTurn()
}

// silent reports whether the daemon has waited for the peer long enough that it may have to
// give way to others.
func (a *arrival) silent() bool {
	since := a.waiting.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > patience
}

// Close ends the connection and all counts for it.
func (a *arrival) Close() error {
	err := a.Conn.Close()
	a.acceptor.left(a)
	return err
}

// drop closes the connection without TLS messages, and so that the kernel keeps no state of it.
func (a *arrival) drop() {
	if c, ok := a.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // a closed connection needs none
	}
	a.Close()
}
