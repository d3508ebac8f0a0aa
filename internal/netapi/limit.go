package netapi

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"sync"
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
func (l *limits) listen(inner net.Listener) net.Listener { return &listener{inner, l} }

type listener struct {
	net.Listener
	limits *limits
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
			return &counted{c, sync.OnceFunc(leave)}, nil
		}
		_ = c.Close() // nothing was sent on it
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	leave func()
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
