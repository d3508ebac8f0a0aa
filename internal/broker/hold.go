package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// loop is the daemon's connection to the server in its own process. What the daemon writes can
// be held back while the store is reopened: a request that reaches a half-closed store is never
// answered, or answered that there is no store. Only the daemon may send such requests.
type loop struct {
	turn chan struct{} // its holder may write, or hold back what others write
	end  chan struct{} // closed when either side is closed
	once sync.Once

	// Guarded by turn.
	held    bool
	kept    []byte        // what was written while it was held
	resumed chan struct{} // closed when it is not held any more
	written uint64        // bytes that the server has taken

	mu      sync.Mutex
	handled uint64        // bytes that the server has handled
	moved   chan struct{} // closed when handled grows
}

// maxKept is how many bytes are kept while a loop is held; further writes wait. It is far more
// than ever waits for a store.
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

// pass gives bytes to the server; the caller holds the turn.
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

// loopServer is the server's side of a loop. The server reads again when it has handled what it
// has read before.
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

// SetWriteDeadline implements net.Conn. There is no deadline, as there is no limit of what waits for the daemon (ownPending): when the
// whole process was stopped for some seconds, or its machine, a write that was under way would have missed it, and the server would
// cut off its own daemon.
func (s *loopServer) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn, as above.
func (s *loopServer) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

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

// hold keeps back everything written from now on, and returns when the server has handled
// everything written before. release passes it on, in order. If hold fails, nothing is held.
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

// fence waits until the server has handled that many bytes.
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

// pongTime is how long a server may take to read an answer to its ping. If it reads nothing,
// the turn is released for others, among them a caller that closes the connection.
const pongTime = time.Second

// answerPings prevents the server from treating a held loop as dead: the answers of the client
// library are held back with everything else. An extra answer does no harm.
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
				d.pong()
			}
			<-d.loop.turn
		}
	}
}

// pong answers a ping; the caller holds the turn. If the server has begun to read the answer,
// it gets all of it.
func (d *loopDaemon) pong() {
	rest := []byte("PONG\r\n")
	_ = d.SetWriteDeadline(time.Now().Add(pongTime)) // an error means that the connection has ended
	n, err := d.pass(rest)
	_ = d.SetWriteDeadline(time.Time{})
	if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		_, _ = d.pass(rest[n:]) // as above
	}
}

// release sends what was held back.
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
		_, _ = d.pass(kept) // an error means that the connection has ended
	}
}

// loopMaker gives the client library the daemon's side, and notes it in own.
type loopMaker struct {
	server *server.Server
	wg     *sync.WaitGroup
	own    **loopDaemon
}

// InProcessConn implements nats.InProcessConnProvider.
func (m loopMaker) InProcessConn() (net.Conn, error) {
	daemon, server := newLoop().ends()
	m.wg.Go(func() { serveClient(m.server, server, true) }) // sends the greeting and returns
	*m.own = daemon
	return daemon, nil
}

// Limits of waiting for questions to the store.
const (
	holdTime   = 5 * time.Second // a server that needs longer is stuck: the store is opened again later
	answerTime = time.Second     // for what was asked before
	answerStep = time.Millisecond
)

// quiet holds back what the daemon writes, and returns when the server has answered all
// questions about the store, which is that of an account. It does not wait for answers that a failed store does not
// give: waited then says why, and release must still be called.
func (d *loopDaemon) quiet(s *server.Server, account, secret string) (release func(), waited, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), holdTime)
	defer cancel()
	if release, err = d.hold(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, answerTime)
	defer cancel()
	return release, answered(ctx, s, account, secret), nil
}

// answered waits until the server has answered all earlier questions about the store. It
// handles the questions one after the other, and sends what it reads from a stream in order, so
// the answer to one more question comes last.
func answered(ctx context.Context, s *server.Server, account, secret string) error {
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
