package netapi

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits for each address and each login, so that one leaves room for others.
const (
	maxConns        = 4096 // HTTP connections in all
	maxConnsOfOne   = 1024 // from one address
	maxRequests     = 3000 // requests under way, including streams
	maxRequestsOne  = 1000 // from one address
	maxStreams      = 2000
	maxStreamsOfOne = 300 // of one login
	maxWork         = 256 // requests of one kind that are being handled, see work
	maxWorkOfOne    = 32  // of one login, or from one address without a login
)

// limits counts what is under way, by kind and by login or address. It is not a rate limit:
// what has ended makes room at once, and nothing is queued.
type limits struct {
	streamsOfOne int

	mu       sync.Mutex
	underWay map[string]int // by kind, and by kind and login or address
}

const manyRequests = "Too many requests are under way."

func newLimits(streamsOfOne int) *limits {
	return &limits{streamsOfOne: cmp.Or(streamsOfOne, maxStreamsOfOne), underWay: map[string]int{}}
}

// enter counts a request from an address.
func (l *limits) enter(a netip.Addr) (leave func(), err error) {
	return l.both("request", maxRequests, block(a).String(), maxRequestsOne, manyRequests)
}

// block is what counts as one address: with IPv6, the /64 network of a host.
func block(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the number of bits is valid
	return p
}

// stream counts an event stream of a login.
func (l *limits) stream(who string) (leave func(), err error) {
	return l.both("stream", maxStreams, who, l.streamsOfOne, "Too many event streams are open.")
}

// work counts a request to the master for one login, or for an address that logs in.
func (l *limits) work(who string) (leave func(), err error) {
	return l.both("work", maxWork, who, maxWorkOfOne, manyRequests)
}

// listen limits the number of open connections.
func (l *limits) listen(inner net.Listener) *listener {
	return &listener{Listener: inner, limits: l, open: map[*counted]bool{}}
}

type listener struct {
	net.Listener
	limits *limits

	mu   sync.Mutex
	open map[*counted]bool
}

// Accept returns the next connection. Connections beyond the limits are closed at once.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := "no address"
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			from = block(a.AddrPort().Addr().Unmap().WithZone("")).String()
		}
		leave, err := l.limits.both("connection", maxConns, from, maxConnsOfOne, manyRequests)
		if err == nil {
			return l.count(c, leave), nil
		}
		_ = c.Close() // nothing was sent on it
	}
}

func (l *listener) count(c net.Conn, leave func()) *counted {
	own := &counted{Conn: c}
	own.leave = sync.OnceFunc(func() {
		l.mu.Lock()
		delete(l.open, own)
		l.mu.Unlock()
		leave()
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[own] = true
	return own
}

// closeAll closes all connections, without a word of TLS: nothing that a client does can make it wait.
func (l *listener) closeAll() {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// counted is a connection that counts until it is closed. A client that does not read what it is sent
// can make no Write wait for longer than writeTime. Those of answers have deadlines already; but TLS
// also writes while it reads, when a client asks for new keys, goes on to read when that fails, and waits
// for it when the connection is to be closed. So a failed Write closes it.
type counted struct {
	net.Conn
	leave   func()
	limited atomic.Bool // by a deadline for writing
}

// Write implements net.Conn.
func (c *counted) Write(b []byte) (int, error) {
	if !c.limited.Load() {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(writeTime)) // the error is that of the write, too
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close() // the first error counts
	}
	return n, err
}

// SetWriteDeadline implements net.Conn.
func (c *counted) SetWriteDeadline(t time.Time) error {
	c.limited.Store(!t.IsZero())
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *counted) SetDeadline(t time.Time) error {
	c.limited.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// login counts a connection to the master that is opened for a login. A few addresses whose logins
// are slowed down leave room for others.
func (l *limits) login(a netip.Addr) (leave func(), err error) {
	return l.both("login", maxLogins, block(a).String(), maxLogins/4, manyRequests)
}

// hook counts a connection for an event that is fired without a login. It takes little time, and
// programs send several at once.
func (l *limits) hook(a netip.Addr) (leave func(), err error) {
	return l.both("login", maxLogins, block(a).String(), maxLogins/2, manyRequests)
}

// position counts a stream with a position, which has its own connection.
func (l *limits) position(who string) (leave func(), err error) {
	return l.both("position", maxPositions, who, maxPositionsOfOne, "Too many event streams with a position are open.")
}

// both counts one request of a kind, in all and for its login or address.
func (l *limits) both(kind string, most int, who string, mostOfOne int, text string) (leave func(), err error) {
	key := kind + " " + who
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay[kind] >= most || l.underWay[key] >= mostOfOne {
		return nil, problem(http.StatusTooManyRequests, "%s", text)
	}
	l.underWay[kind]++
	l.underWay[key]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.give(kind)
		l.give(key)
	}, nil
}

func (l *limits) give(key string) {
	if l.underWay[key]--; l.underWay[key] <= 0 {
		delete(l.underWay, key)
	}
}
