package metrics

import (
	"net"
	"sync"
)

// maxConns is how many clients may be connected at a time: a collector needs one connection.
const maxConns = 16

// listener limits the number of connections. If all are in use, a new client replaces the oldest:
// clients that stay connected cannot block a new one.
type listener struct {
	net.Listener

	mu    sync.Mutex
	taken []*conn // oldest first
}

type conn struct {
	net.Conn
	of *listener
}

func newListener(l net.Listener) *listener { return &listener{Listener: l} }

// Accept implements net.Listener.
func (p *listener) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &conn{c, p}
	p.mu.Lock()
	p.taken = append(p.taken, one)
	var oldest *conn
	if len(p.taken) > maxConns {
		oldest = p.taken[0]
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return one, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.leave(c)
	return c.Conn.Close()
}

func (p *listener) leave(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range p.taken {
		if one == c {
			p.taken = append(p.taken[:i], p.taken[i+1:]...)
			return
		}
	}
}
