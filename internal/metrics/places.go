package metrics

import (
	"net"
	"sync"
)

// maxConns is how many may be connected at once: a collector needs one.
const maxConns = 16

// places is a listener with few connections. Who comes when all places are taken gets that
// of the one who has it longest: clients that stay cannot keep a new one out.
type places struct {
	net.Listener

	mu    sync.Mutex
	taken []*place // the oldest first
}

type place struct {
	net.Conn
	of *places
}

func newPlaces(l net.Listener) *places { return &places{Listener: l} }

// Accept implements net.Listener.
func (p *places) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &place{c, p}
	p.mu.Lock()
	p.taken = append(p.taken, one)
	var oldest *place
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
func (c *place) Close() error {
	c.of.leave(c)
	return c.Conn.Close()
}

func (p *places) leave(c *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range p.taken {
		if one == c {
			p.taken = append(p.taken[:i], p.taken[i+1:]...)
			return
		}
	}
}
