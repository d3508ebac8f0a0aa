package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// loop is the connection of the daemon to the server in its own process. What the daemon
// writes can be held back while the store is opened anew: a question that meets a store half
// closed is never answered, or that there is none. Nobody else may ask such questions.
type loop struct {
	turn chan struct{} // who has it writes, or holds back what others write
	end  chan struct{} // closed when either side is
	once sync.Once

	// Guarded by turn.
	held    bool
	kept    []byte        // what was written while it was held
	resumed chan struct{} // closed when it is not held any more
	written uint64        // bytes that the server has taken

	mu      sync.Mutex
	handled uint64        // bytes that the server has done with
	moved   chan struct{} // closed when handled grows
}

// maxKept is how many bytes are kept while a loop is held; who writes more waits. It is
// far more than waits for answers of a store.
const maxKept = 64 << 20

func newLoop() *loop {
	return &loop{turn: make(chan struct{}, 1), end: make(chan struct{}), moved: make(chan struct{})}
}

// ends returns both sides.
func (l *loop) ends() (daemon *loopDaemon, server *loopServer) {
	d, s := net.Pipe()
	return &loopDaemon{d, l}, &loopServer{Conn: s, loop: l}
}

func (l *loop) close() { l.once.Do(func() { close(l.end) }) }

// loopDaemon is the daemon's side of a loop.
type loopDaemon struct {
	net.Conn
	loop *loop
}

// Write implements net.Conn. The client library writes whole messages at once.
func (d *loopDaemon) Write(b []byte) (int, error) {
	l := d.loop
	for {
		select {
		case l.turn <- struct{}{}:
		case <-l.end:
			return 0, io.ErrClosedPipe
		}
		if !l.held || len(l.kept)+len(b) <= maxKept {
			break
		}
		resumed := l.resumed
		<-l.turn
		select {
		case <-resumed:
		case <-l.end:
			return 0, io.ErrClosedPipe
		}
	}
	defer func() { <-l.turn }()
	if l.held {
		l.kept = append(l.kept, b...)
		return len(b), nil
	}
	return d.pass(b)
}

// pass gives bytes to the server; the turn is the caller's.
func (d *loopDaemon) pass(b []byte) (int, error) {
	n, err := d.Conn.Write(b)
	d.loop.written += uint64(n)
	return n, err
}

// Close implements net.Conn.
func (d *loopDaemon) Close() error {
	d.loop.close()
	return d.Conn.Close()
}

// loopServer is the server's side of a loop. The server reads again when it has handled
// what it has read.
type loopServer struct {
	net.Conn
	loop *loop
	got  uint64 // by the last Read
}

// Read implements net.Conn.
func (s *loopServer) Read(b []byte) (int, error) {
	s.loop.done(s.got)
	n, err := s.Conn.Read(b)
	s.got = uint64(n)
	return n, err
}

// Close implements net.Conn.
func (s *loopServer) Close() error {
	s.loop.close()
	return s.Conn.Close()
}

func (l *loop) done(n uint64) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handled += n
	close(l.moved)
	l.moved = make(chan struct{})
}

// hold keeps back what is written from now on, and returns when the server has handled
// all that was written before. release lets go of it, in order. With an error nothing is
// held.
func (d *loopDaemon) hold(ctx context.Context) (release func(), err error) {
	l := d.loop
	select {
	case <-l.end:
		return nil, io.ErrClosedPipe
	default:
	}
	select {
	case l.turn <- struct{}{}:
	case <-l.end:
		return nil, io.ErrClosedPipe
	case <-ctx.Done():
		return nil, fmt.Errorf("hold the daemon's own connection: %w", ctx.Err())
	}
	l.held, l.resumed = true, make(chan struct{})
	written := l.written
	<-l.turn
	stop := make(chan struct{})
	var pings sync.WaitGroup
	pings.Go(func() { d.answerPings(stop) })
	release = func() { close(stop); pings.Wait(); d.release() }
	if err := l.fence(ctx, written); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// fence waits until the server has handled so many bytes.
func (l *loop) fence(ctx context.Context, written uint64) error {
	for {
		l.mu.Lock()
		handled, moved := l.handled, l.moved
		l.mu.Unlock()
		if handled >= written {
			return nil
		}
		select {
		case <-moved:
		case <-l.end:
			return io.ErrClosedPipe
		case <-ctx.Done():
			return fmt.Errorf("the server is busy with what the daemon has written: %w", ctx.Err())
		}
	}
}

// answerPings keeps a loop that is held from being taken for dead: the answers of the
// client library are kept with all else. One that nobody has asked for does no harm.
func (d *loopDaemon) answerPings(stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-d.loop.end:
			return
		case <-tick.C:
		}
		select {
		case <-stop:
			return
		case <-d.loop.end:
			return
		case d.loop.turn <- struct{}{}:
			if d.loop.held {
				_, _ = d.pass([]byte("PONG\r\n")) // it ends with the connection
			}
			<-d.loop.turn
		}
	}
}

// release lets go of what was kept.
func (d *loopDaemon) release() {
	l := d.loop
	select {
	case l.turn <- struct{}{}:
	case <-l.end:
		return
	}
	defer func() { <-l.turn }()
	kept := l.kept
	l.held, l.kept = false, nil
	close(l.resumed)
	if len(kept) > 0 {
		_, _ = d.pass(kept) // an error is that the connection has ended
	}
}

// loopMaker gives the client library the daemon's side.
type loopMaker struct{ b *Broker }

// InProcessConn implements nats.InProcessConnProvider.
func (m loopMaker) InProcessConn() (net.Conn, error) {
	daemon, server := newLoop().ends()
	m.b.wg.Go(func() { serveClient(m.b.server, server, true) }) // it greets, and returns
	m.b.own = daemon
	return daemon, nil
}

// Bounds of the way to a store that nobody has a question to.
const (
	holdTime   = 5 * time.Second // a server that needs longer is stuck: the store is opened anew later
	answerTime = time.Second     // for what was asked before
	answerStep = time.Millisecond
)

// quiet holds back what the daemon writes, and returns when what it has asked the store of
// the server is answered. Answers that a failed store does not give are not waited for:
// waited is then why, and release must be called all the same.
func (d *loopDaemon) quiet(s *server.Server, secret string) (release func(), waited, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), holdTime)
	defer cancel()
	if release, err = d.hold(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, answerTime)
	defer cancel()
	return release, answered(ctx, s, secret), nil
}

// answered waits until the server has answered what it was asked about the store: it
// counts the questions that it handles one after the other, and what it reads at once from
// a stream leaves in order, so that the answer to one more question comes last.
func answered(ctx context.Context, s *server.Server, secret string) error {
	var streams []server.StreamDetail
	for {
		info, err := s.Jsz(&server.JSzOptions{Account: account, Streams: true})
		if err != nil || info.Disabled {
			return err
		}
		if info.API.Inflight == 0 {
			for _, a := range info.AccountDetails {
				streams = append(streams, a.Streams...)
			}
			break
		}
		select {
		case <-time.After(answerStep):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	nc, err := nats.Connect("nats://self", nats.InProcessServer(s), nats.UserInfo(secret, ""), nats.SkipHostLookup(),
		nats.NoReconnect(), nats.CustomInboxPrefix("_INBOX.master"), nats.Timeout(answerTime))
	if err != nil {
		return err
	}
	defer nc.Close()
	for _, stream := range streams {
		_, err := nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream.Name, nil)
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("%s: %w", stream.Name, err)
		}
	}
	return nil
}
