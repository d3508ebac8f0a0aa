package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// ErrNoAddress is wrapped by the error of an attempt at a master whose name has no address, or
// none that the resolver returns in time.
var ErrNoAddress = errors.New("the name of the master has no address")

// nameless is an ErrNoAddress about a NATS server.
type nameless struct{}

func (nameless) Error() string        { return "the name of the server has no address" }
func (nameless) Is(target error) bool { return target == ErrNoAddress }

// noAddress is ErrNoAddress about what is dialed.
func noAddress(o Options) error {
	if o.Servers.used() {
		return nameless{}
	}
	return ErrNoAddress
}

// resolve returns the addresses of the master, the best first. It asks the resolver at each
// attempt. A name without an address never means this machine.
func resolve(ctx context.Context, o Options) ([]string, error) {
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return nil, noAddress(o) // the system would connect to this machine
	}
	network := "ip"
	if o.OnlyIPv4 {
		network = "ip4"
	}
	asking, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(asking, network, host)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", noAddress(o), err)
	}
	addresses := make([]string, len(ips))
	for i, ip := range ips {
		addresses[i] = net.JoinHostPort(ip.Unmap().String(), port)
	}
	return addresses, nil
}

// stagger is the time after which the next address is tried in parallel, as in RFC 8305.
const stagger = 250 * time.Millisecond

// attempt is the result of connecting to one of several addresses.
type attempt struct {
	i    int
	conn net.Conn
	err  error
}

// dialFirst returns a connection to the first address that answers, and its index. Each address
// has its full time, and a silent one delays the others only for a moment.
func dialFirst(ctx context.Context, o Options, addresses []string) (net.Conn, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := net.Dialer{Timeout: o.Timeout, KeepAlive: 15 * time.Second}
	if ip, err := netip.ParseAddr(o.Source); err == nil {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	}
	ended := make(chan attempt, len(addresses))
	next := time.NewTimer(0)
	defer next.Stop()
	var failed error
	for begun, under := 0, 0; ; {
		select {
		case <-next.C:
			if begun < len(addresses) {
				go func(i int) {
					c, err := d.DialContext(ctx, "tcp", addresses[i])
					ended <- attempt{i, c, err}
				}(begun)
				begun, under = begun+1, under+1
				next.Reset(stagger)
			}
		case a := <-ended:
			under--
			if a.err == nil {
				cancel()
				hangUp(ended, under)
				return a.conn, a.i, nil
			}
			failed = errors.Join(failed, a.err)
			if begun < len(addresses) {
				next.Reset(0)
			} else if under == 0 {
				return nil, 0, failed
			}
		}
	}
}

// hangUp waits for attempts that are no longer needed, and closes their connections.
func hangUp(ended <-chan attempt, under int) {
	for range under {
		if a := <-ended; a.conn != nil {
			a.conn.Close()
		}
	}
}

// dialed passes an existing connection to the client library. Until stop is called, the end of
// the context also ends the connection, in case the master accepts it and sends nothing.
type dialed struct {
	net.Conn
	stop func() bool
}

// Dial implements nats.CustomDialer; the connection exists already.
func (d *dialed) Dial(string, string) (net.Conn, error) {
	return &greeted{Conn: d.Conn, left: maxGreeting}, nil
}

// maxGreeting limits the line that a server sends before TLS begins. That of NATS has less than
// a kilobyte; the client library would read an endless one.
const maxGreeting = 32 << 10

// greeted is a connection with a limit for its first line. TLS follows.
type greeted struct {
	net.Conn
	left int // remaining bytes of the line; 0 once it has ended
}

// Read implements net.Conn.
func (g *greeted) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if g.left == 0 {
		return n, err
	}
	if bytes.IndexByte(p[:n], '\n') >= 0 {
		g.left = 0
	} else if g.left -= n; g.left <= 0 {
		g.left = 1 // it has not ended: any further byte is too much
		return 0, errors.New("the greeting of the server does not end: is it a master?")
	}
	return n, err
}
