package netapi

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Limits by address and by login: what one has under way must leave room for others.
const (
	maxConns        = 4096 // HTTP connections, of all
	maxConnsOfOne   = 1024 // and of one address
	maxRequests     = 3000 // requests under way, streams among them
	maxRequestsOne  = 1000 // of one address
	maxStreams      = 2000
	maxStreamsOfOne = 300 // of one login
	maxWork         = 256 // requests of one kind that are worked on: see work
	maxWorkOfOne    = 32  // of one login, or of one address without
)

type limits struct {
	streamsOfOne int

	mu    sync.Mutex
	all   int
	ofOne map[string]int // and of all of a kind, under its bare name
}

const manyRequests = "Too many requests are under way."

func newLimits(streamsOfOne int) *limits {
	return &limits{streamsOfOne: cmp.Or(streamsOfOne, maxStreamsOfOne), ofOne: map[string]int{}}
}

// book counts one more of key, or says that there are too many.
func (l *limits) book(key string, most int) bool {
	if l.ofOne[key] >= most {
		return false
	}
	l.ofOne[key]++
	return true
}

func (l *limits) give(key string) {
	if l.ofOne[key]--; l.ofOne[key] <= 0 {
		delete(l.ofOne, key)
	}
}

// enter counts a request of an address.
func (l *limits) enter(a netip.Addr) (leave func(), err error) {
	key := "address " + block(a).String()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxRequests || !l.book(key, maxRequestsOne) {
		return nil, problem(http.StatusTooManyRequests, manyRequests)
	}
	l.all++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		l.give(key)
	}, nil
}

// block is what counts as one address: a network of IPv6 is one host's.
func block(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the number fits
	return p
}

// stream counts an event stream of a login.
func (l *limits) stream(who string) (leave func(), err error) {
	return l.both("stream", maxStreams, who, l.streamsOfOne, "Too many event streams are open.")
}

// work counts what is asked of the master for one login, or for an address that logs in.
func (l *limits) work(who string) (leave func(), err error) {
	return l.both("work", maxWork, who, maxWorkOfOne, manyRequests)
}

// listen bounds the connections that are open.
func (l *limits) listen(inner net.Listener) net.Listener {
	return &listener{Listener: inner, of: map[netip.Prefix]int{}}
}

type listener struct {
	net.Listener
	mu  sync.Mutex
	all int
	of  map[netip.Prefix]int
}

// Accept returns the next connection; what is too much is closed at once.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := netip.Prefix{}
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			from = block(a.AddrPort().Addr().Unmap().WithZone(""))
		}
		if l.enter(from) {
			return &counted{Conn: c, of: l, from: from}, nil
		}
		_ = c.Close() // nothing was said on it
	}
}

func (l *listener) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConns || l.of[from] >= maxConnsOfOne {
		return false
	}
	l.all++
	l.of[from]++
	return true
}

func (l *listener) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[from]--; l.of[from] <= 0 {
		delete(l.of, from)
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	of   *listener
	from netip.Prefix
	shut atomic.Bool
}

// Close implements net.Conn.
func (c *counted) Close() error {
	if c.shut.CompareAndSwap(false, true) {
		c.of.leave(c.from)
	}
	return c.Conn.Close()
}

// login counts a connection to the master on which somebody is about to log in.
func (l *limits) login(a netip.Addr) (leave func(), err error) {
	return l.both("login", maxLogins, block(a).String(), maxLogins/2, manyRequests)
}

// position counts a stream with a position, which has a connection of its own.
func (l *limits) position(who string) (leave func(), err error) {
	return l.both("position", maxPositions, who, maxPositionsOfOne, "Too many event streams with a position are open.")
}

// both counts one of a kind, and of whoever it is for.
func (l *limits) both(kind string, most int, who string, mostOfOne int, text string) (leave func(), err error) {
	key := kind + " " + who
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ofOne[kind] >= most || !l.book(key, mostOfOne) {
		return nil, problem(http.StatusTooManyRequests, "%s", text)
	}
	l.ofOne[kind]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.give(kind)
		l.give(key)
	}, nil
}
