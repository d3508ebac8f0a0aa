// Package link is a minion's connection to one master: it proves who both are,
// asks whether the minion is accepted, and holds the bus.
//
// It makes one attempt and tells how that ended. Trying again, and which master
// next, is for its caller; salt-call and the daemon share it.
package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/bus"
	"brine/internal/pki"
	"brine/internal/protocol"
	"brine/internal/salt"
)

// Errors that say why a master is refused or refuses. Another error means that
// it could not be reached, and that trying again is right.
var (
	ErrMasterKey = errors.New("the master's key is not the one that is trusted")
	ErrSignature = errors.New("the master's public key did not authenticate")
	ErrRejected  = errors.New("the master has rejected this minion's public key")
	ErrDenied    = errors.New("the master knows this minion's id with another public key")
)

// Options describe one attempt. Address, ID, Key, PinFile and Log are required.
type Options struct {
	Address        string // host:port
	ID             salt.MinionID
	Key            *pki.PrivateKey
	PinFile        string // where the master's public key is kept: minion_master.pub
	Trust          Trust  // which master keys are taken
	Caller         bool   // salt-call: no jobs
	AutosignGrains map[string]string
	Version        string
	Timeout        time.Duration // for each step: to connect, to be answered
	PingInterval   time.Duration // how often the connection is tried out; dead after two of them without an answer
	Log            *slog.Logger
}

// Link is a connection over which the keys of both sides are proven.
type Link struct {
	*bus.Conn
	Master pki.PublicKey
	Closed <-chan struct{}    // closed when the connection has ended
	answer protocol.AskAnswer // the latest
	asking *bus.Stream
	opts   Options
}

// Connect makes one attempt. The link that it returns may be pending: Wait says
// when that changes. An error that wraps ErrMasterKey, ErrSignature,
// ErrRejected or ErrDenied is a refusal, any other a failure to reach the master.
func Connect(ctx context.Context, o Options) (*Link, error) {
	certificate, err := o.Key.Certificate(string(o.ID))
	if err != nil {
		return nil, err
	}
	hand, err := newHandshake(o)
	if err != nil {
		return nil, err
	}
	self := bus.Identity{Role: bus.RoleMinion, Name: string(o.ID), Key: bus.KeyToken(o.Key.Public().Key()), Nonce: bus.NewNonce()}
	name := "salt-minion"
	if o.Caller {
		self.Role, name = bus.RoleCaller, "salt-call"
	}
	closed := make(chan struct{})
	dial := &dialer{ctx: ctx, timeout: o.Timeout}
	nc, err := nats.Connect("nats://"+o.Address,
		nats.SetCustomDialer(dial), nats.SkipHostLookup(), nats.Timeout(o.Timeout),
		nats.Secure(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate},
			// Names and dates in certificates decide nothing: verify compares the key.
			InsecureSkipVerify: true, VerifyConnection: hand.verify, //nolint:gosec
		}),
		nats.UserInfo(self.Nonce, ""), nats.Name(name), nats.CustomInboxPrefix(self.Inbox()), nats.IgnoreDiscoveredServers(), nats.SyncQueueLen(bus.QueueLen),
		nats.NoReconnect(), nats.PingInterval(o.PingInterval), nats.MaxPingsOutstanding(1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			o.Log.Debug("connection to the master", "master", o.Address, "err", err)
		}))
	dial.release()
	if err != nil {
		switch {
		case hand.refusal != nil:
			return nil, hand.refusal
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, nats.ErrNoServers) && dial.err != nil {
			err = dial.err // the client library keeps the cause to itself
		}
		return nil, fmt.Errorf("connect to the master at %s: %w", o.Address, unwrapNATS(err))
	}
	l := &Link{Conn: bus.NewConn(nc, self), Master: hand.shown, Closed: closed, opts: o}
	if err := l.settle(ctx, hand); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// settle pins the key, now that the handshake has proven it, and asks.
func (l *Link) settle(ctx context.Context, h *handshake) error {
	if err := h.pin(); err != nil {
		return err
	}
	stream, err := l.Call(protocol.OpAsk, protocol.Ask{AutosignGrains: l.opts.AutosignGrains, Version: l.opts.Version})
	if err != nil {
		return err
	}
	l.asking = stream
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	return l.next(ctx)
}

// Ready says whether the connection has the rights of an accepted minion.
func (l *Link) Ready() bool { return l.answer.State == protocol.KeyAccepted && !l.answer.Reconnect }

// State is where the minion's key stands, as the master said last.
func (l *Link) State() protocol.KeyState { return l.answer.State }

// Wait returns when a key that waits is accepted: nil when the minion should
// connect anew for its rights, an error that wraps ErrRejected or ErrDenied, or
// another when the connection ended.
func (l *Link) Wait(ctx context.Context) error {
	for l.answer.State != protocol.KeyAccepted {
		if err := l.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// next reads one word on the state of the key.
func (l *Link) next(ctx context.Context) error {
	if err := l.asking.Decode(ctx, &l.answer); err != nil {
		return fmt.Errorf("ask the master at %s whether the key is accepted: %w", l.opts.Address, err)
	}
	fingerprint := l.opts.Key.Public().SHA256()
	switch l.answer.State {
	case protocol.KeyRejected:
		return fmt.Errorf("%w: %s", ErrRejected, fingerprint)
	case protocol.KeyDenied:
		return fmt.Errorf("%w; this one is %s", ErrDenied, fingerprint)
	}
	return nil
}

// dialer resolves the name at each attempt and tries every address of it. Until
// release is called the end of the context ends the connection too, so that
// nobody waits for a master that takes the call and says nothing.
type dialer struct {
	ctx     context.Context
	timeout time.Duration
	stop    func() bool
	err     error // of the last attempt
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	nd := net.Dialer{Timeout: d.timeout, KeepAlive: 15 * time.Second}
	c, err := nd.DialContext(d.ctx, network, address)
	if d.err = err; err != nil {
		return nil, err
	}
	d.stop = context.AfterFunc(d.ctx, func() { c.Close() })
	return &greeted{Conn: c, left: maxGreeting}, nil
}

// maxGreeting bounds the line that a server sends before TLS begins. NATS' own
// has below a kilobyte; the client library would read an endless one.
const maxGreeting = 32 << 10

// greeted is a connection whose first line is bounded. What follows is TLS.
type greeted struct {
	net.Conn
	left int // bytes that the line may still have; 0 once it has ended
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
		g.left = 1 // it has not ended: every further byte is too much
		return 0, errors.New("the server greets without an end: is it a master?")
	}
	return n, err
}

func (d *dialer) release() {
	if d.stop != nil {
		d.stop()
	}
}

// unwrapNATS keeps the cause and drops the client library's own words.
func unwrapNATS(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return errors.New("the master closed the connection: it takes no more connections of this key now")
	case errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrSecureConnRequired):
		return errors.New("there is no TLS on that port: is it a master?")
	}
	return err
}
