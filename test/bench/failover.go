package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/pki"
)

// alive is master_alive_interval, and the ping interval of the bare client that
// Brine has with it.
const alive = time.Second

// failovers measures how long it takes from the loss of a master, or of a bare
// server, to the first answer by way of another.
func failovers(ctx context.Context, o Options) ([]Row, error) {
	p, err := startTwins(ctx, o)
	defer p.stop()
	if err != nil {
		return nil, err
	}
	b, err := startBareTwins(o)
	defer b.stop()
	if err != nil {
		return nil, err
	}
	dies := Row{What: "master's connection dies: loss to first answered job", Unit: "ms", Goal: 300, Beside: "a client with two servers, until a request is answered"}
	vanish := Row{What: "packets vanish, `master_alive_interval: 1`: loss to first answered job", Unit: "ms", Goal: 3000, Beside: "the same, with the same ping interval"}
	for range o.Losses {
		for _, one := range []struct {
			row *Row
			cut func(*strait)
		}{{&dies, (*strait).cut}, {&vanish, (*strait).silence}} {
			ours, err := p.lose(ctx, one.cut)
			if err != nil {
				return nil, err
			}
			theirs, err := b.lose(ctx, one.cut)
			if err != nil {
				return nil, err
			}
			one.row.Brine, one.row.Bare = append(one.row.Brine, ours), append(one.row.Bare, theirs)
		}
	}
	return []Row{dies, vanish}, nil
}

// strait is a way to a server that can be cut, and can fall silent.
type strait struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	closed   bool
	silent   bool
	conns    map[net.Conn]bool
}

func openStrait(to string) (*strait, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &strait{listener: l, to: to, conns: map[net.Conn]bool{}}
	go s.serve()
	return s, nil
}

func (s *strait) serve() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.carry(c)
	}
}

// keep notes a connection; false says that the way is cut.
func (s *strait) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	s.conns[c] = true
	return true
}

func (s *strait) carry(c net.Conn) {
	if !s.keep(c) {
		return
	}
	up, err := net.Dial("tcp", s.to)
	if err != nil {
		c.Close()
		return
	}
	if !s.keep(up) {
		return
	}
	go s.copy(up, c)
	s.copy(c, up)
}

// copy ends both connections when one ends, unless nobody is to hear of it.
func (s *strait) copy(to, from net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if s.isSilent() {
			continue
		}
		if err == nil {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

// isSilent waits a little before it says so, for the sake of the processor.
func (s *strait) isSilent() bool {
	s.mu.Lock()
	silent, closed := s.silent, s.closed
	s.mu.Unlock()
	if silent && !closed {
		time.Sleep(time.Millisecond)
	}
	return silent && !closed
}

// cut ends all connections, and every one that is made from now on.
func (s *strait) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.silent = true, false
	for c := range s.conns {
		c.Close()
	}
	s.conns = map[net.Conn]bool{}
}

// silence swallows everything.
func (s *strait) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

// open makes a way of it again. What it swallowed is gone, and so are the
// connections.
func (s *strait) open() {
	s.cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
}

// twins are two masters and a minion that has both in its list.
type twins struct {
	masters [2]*system
	ways    [2]*strait
	now     int // which of them is in use
}

func (p *twins) stop() {
	for i, s := range p.masters {
		if p.ways[i] != nil {
			p.ways[i].listener.Close()
			p.ways[i].cut()
		}
		if s != nil {
			s.stop()
		}
	}
}

func startTwins(ctx context.Context, o Options) (*twins, error) {
	p := &twins{}
	for i := range p.masters {
		dir := filepath.Join(o.Dir, fmt.Sprintf("twin%d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return p, err
		}
		s, err := newSystem(o.Bin, dir)
		if err != nil {
			return p, err
		}
		p.masters[i] = s
		if err := s.startMaster(); err != nil {
			return p, err
		}
		if p.ways[i], err = openStrait(s.address()); err != nil {
			return p, err
		}
	}
	return p, p.startMinion(ctx)
}

func (p *twins) startMinion(ctx context.Context) error {
	const id = "one"
	s := p.masters[0]
	if err := s.configure(id, "minion", fmt.Sprintf("id: %s\nmaster: ['%s', '%s']\nmaster_type: failover\nmaster_trust_on_first_use: each\nmaster_alive_interval: %d\n",
		id, p.ways[0].listener.Addr(), p.ways[1].listener.Addr(), alive/time.Second)); err != nil {
		return err
	}
	if _, err := s.launch(id, s.program("salt-minion"), "-c", s.conf(id)); err != nil {
		return err
	}
	if err := until(ctx, "the key of the minion", 10*time.Millisecond, func() (bool, error) { return exists(s.keyFile("minions_pre", id)) }); err != nil {
		return err
	}
	key, err := pki.LoadPublic(s.keyFile("minions_pre", id))
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.masters[1].keyFile("minions", id), key.PEM(), 0o644); err != nil {
		return err
	}
	if err := s.accept(ctx, id); err != nil {
		return err
	}
	return s.answered(ctx, id)
}

// lose takes the master in use away and returns the milliseconds until the other one
// is answered.
func (p *twins) lose(ctx context.Context, cut func(*strait)) (float64, error) {
	begin := time.Now()
	cut(p.ways[p.now])
	err := p.masters[1-p.now].answered(ctx, "one")
	took := time.Since(begin)
	p.ways[p.now].open()
	p.now = 1 - p.now
	return float64(took) / float64(time.Millisecond), err
}

// bareTwins is the same with nothing but NATS: a client that answers requests, and
// has two servers.
type bareTwins struct {
	daemons
	bin       string
	ways      [2]*strait
	addresses [2]string
	now       int
}

func (b *bareTwins) stop() {
	for _, w := range b.ways {
		if w != nil {
			w.listener.Close()
			w.cut()
		}
	}
	b.daemons.stop()
}

func startBareTwins(o Options) (*bareTwins, error) {
	b := &bareTwins{daemons: daemons{dir: o.Dir}, bin: o.Bin}
	var urls [2]string
	for i := range b.ways {
		var err error
		if _, b.addresses[i], err = b.startTalking(filepath.Join(o.Bin, "bareserver"), filepath.Join(o.Dir, fmt.Sprintf("baretwin%d", i))); err != nil {
			return b, err
		}
		if b.ways[i], err = openStrait(b.addresses[i]); err != nil {
			return b, err
		}
		urls[i] = "tls://" + b.ways[i].listener.Addr().String()
	}
	_, _, err := b.startTalking(filepath.Join(o.Bin, "bare"), "follow", urls[0]+","+urls[1], "job.one")
	return b, err
}

// lose takes the server in use away and returns the milliseconds until a request to
// the other one is answered.
func (b *bareTwins) lose(ctx context.Context, cut func(*strait)) (float64, error) {
	begin := time.Now()
	cut(b.ways[b.now])
	err := until(ctx, "an answer of the bare client", time.Millisecond, func() (bool, error) {
		_, err := once(ctx, filepath.Join(b.bin, "bare"), "request", "nats://"+b.addresses[1-b.now], "job.one")
		return err == nil, nil
	})
	took := time.Since(begin)
	b.ways[b.now].open()
	b.now = 1 - b.now
	return float64(took) / float64(time.Millisecond), err
}
