// Package upstream connects a minion to its masters. [Connect] makes one attempt at one master:
// both sides prove their keys, and the minion asks whether its key is accepted; salt-call and
// the daemon share it. An [Uplink] keeps a connection to one master of a list as long as the
// daemon runs, and [Uplinks] are those to all masters in use at the same time.
//
// It runs no jobs, and stores nothing for a master that is away: a [Daemon] uses the [Session].
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Why a master was refused or refuses. Any other error means that it could not be reached, and
// that another attempt makes sense.
var (
	ErrMasterKey = errors.New("the master's key is not the one that is trusted")
	ErrSignature = errors.New("the master's public key did not authenticate")
	ErrRejected  = errors.New("the master has rejected this minion's public key")
	ErrDenied    = errors.New("the master knows this minion's id with another public key")
	// ErrForgotten is no refusal: the key is to be shown again.
	ErrForgotten = errors.New("this minion's public key was deleted at the master while it waited to be accepted")
)

// Options describe one attempt. Address, ID, Key, PinFile and Log are required.
type Options struct {
	Address        string // host:port
	Name           string // name of the master in the log; Address if empty
	OnlyIPv4       bool
	Source         string // local address of the connection; "" leaves it to the system
	ID             salt.MinionID
	Key            *pki.PrivateKey
	PinFile        string  // file of the master's pinned key: minion_master.pub; those of other masters are beside it
	LatestFile     string  // second file for a signed key; "" for none
	Trust          Trust   // which master keys are trusted
	Servers        Servers // through which the master is reached, instead of directly
	Caller         bool    // salt-call: no jobs
	AutosignGrains map[string]string
	Version        string
	Speaks         Protocol      // protocol to announce; the zero value is the real one
	Timeout        time.Duration // for each step: connecting, getting an answer
	PingInterval   time.Duration // pause between pings; the connection is dead after two without an answer
	Log            *slog.Logger
}

// Connection is a connection on which both sides have proved their keys.
type Connection struct {
	*rpc.Conn
	Master pki.PublicKey
	Closed <-chan struct{}    // closed when the connection has ended
	answer protocol.AskAnswer // the latest
	asking *rpc.Stream
	basis  basis // why the master is trusted
	opts   Options
}

// Connect makes one attempt, at every address of the master's name. The connection may be
// pending: Wait returns when that changes. An error that wraps ErrMasterKey, ErrSignature,
// ErrRejected or ErrDenied is a refusal by all that could be reached; any other, including
// ErrNoAddress, means that the master could not be reached.
func Connect(ctx context.Context, o Options) (*Connection, error) {
	if o.Name == "" {
		o.Name = o.Address
	}
	if o.Speaks == (Protocol{}) {
		o.Speaks = Spoken(o.Version)
	}
	if o.Trust.Verify && o.Trust.VerifyErr != nil {
		return nil, o.Trust.VerifyErr // whichever master it is
	}
	if o.Servers.used() {
		return throughServers(ctx, o)
	}
	addresses, err := resolve(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("connect to the master at %s: %w", o.Address, err)
	}
	var refused, failed error
	for len(addresses) > 0 {
		conn, i, err := dialFirst(ctx, o, addresses)
		if ctx.Err() != nil {
			if conn != nil {
				conn.Close()
			}
			return nil, context.Cause(ctx)
		}
		if err != nil {
			failed = errors.Join(failed, err)
			break
		}
		l, err := connectOver(ctx, o, conn)
		switch {
		case err == nil, ctx.Err() != nil:
			return l, err
		case isRefusal(err):
			refused = err
		default:
			failed = errors.Join(failed, err)
		}
		addresses = slices.Delete(addresses, i, i+1)
	}
	if failed == nil {
		return nil, refused
	}
	return nil, fmt.Errorf("connect to the master at %s: %w", o.Address, failed)
}

func isRefusal(err error) bool {
	return errors.Is(err, ErrMasterKey) || errors.Is(err, ErrSignature) || errors.Is(err, ErrRejected) || errors.Is(err, ErrDenied)
}

// connectOver makes a Connection of conn, which it owns from then on.
func connectOver(ctx context.Context, o Options, conn net.Conn) (*Connection, error) {
	dial := &dialed{Conn: conn, stop: context.AfterFunc(ctx, func() { conn.Close() })}
	defer dial.stop()
	certificate, err := o.certificate()
	if err != nil {
		conn.Close()
		return nil, err
	}
	hand, err := newHandshake(o)
	if err != nil {
		conn.Close()
		return nil, err
	}
	self := bus.Identity{Role: bus.RoleMinion, Name: string(o.ID), Key: bus.KeyToken(o.Key.Public().Key()), Nonce: bus.NewNonce()}
	name := "salt-minion"
	if o.Caller {
		self.Role, name = bus.RoleCaller, "salt-call"
	}
	closed := make(chan struct{})
	nc, err := nats.Connect("nats://"+o.Address, append(o.login(self, certificate, hand),
		nats.SetCustomDialer(dial), nats.SkipHostLookup(), nats.Timeout(o.Timeout), nats.Name(name), nats.CustomInboxPrefix(self.Inbox()), nats.IgnoreDiscoveredServers(), nats.SyncQueueLen(rpc.QueueLen),
		nats.NoReconnect(), nats.PingInterval(o.PingInterval), nats.MaxPingsOutstanding(1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		conn.Close()
		switch {
		case o.Servers.used() && ctx.Err() == nil:
			return nil, hand.serverError(err)
		case hand.refusal != nil:
			return nil, hand.refusal
		case hand.unfit != nil:
			return nil, hand.unfit
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		return nil, unwrapNATS(err)
	}
	if hand.unfit != nil {
		nc.Close()
		return nil, hand.unfit
	}
	l := &Connection{Conn: rpc.NewConn(nc, self), Master: hand.shown, Closed: closed, opts: o}
	l.HearComplaints(func(err error) { o.Log.Debug("connection to the master", "master", o.Name, "err", err) })
	if o.Servers.used() {
		l.Numbers()
	}
	if !o.Caller {
		l.AsksOften()
	}
	if !o.Servers.used() && framed(o.Speaks, hand.other) { // both ends of servers between are newer
		l.UseFrames()
	}
	if err := l.confirm(ctx, hand); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (o Options) certificate() (tls.Certificate, error) {
	speaks, err := o.Speaks.Extension()
	if err != nil {
		return tls.Certificate{}, err
	}
	return o.Key.Certificate(string(o.ID), speaks)
}

// confirm asks about the minion's key, and pins the master's key once there is an answer. The
// handshake, or the answer, has proved that key, but a server that sends only a greeting is not
// a master, and its key must not be pinned.
func (l *Connection) confirm(ctx context.Context, h *handshake) error {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	answered := l.ask(ctx, h, l.opts.AutosignGrains)
	if rpc.CodeOf(answered) == rpc.Usage && len(l.opts.AutosignGrains) > 0 { // this master accepts no grains in the question
		answered = l.ask(ctx, h, nil)
	}
	if answered != nil && !isRefusal(answered) {
		return answered
	}
	if h.basis == refused {
		return answered // the answer has not proved a key that is trusted
	}
	err := errors.Join(h.pin(), answered)
	l.basis = h.basis
	return err
}

// ask asks for the state of the minion's key, and reads the first answer.
func (l *Connection) ask(ctx context.Context, h *handshake, grains map[string]string) (err error) {
	challenge := l.opts.challenge()
	if l.asking, err = l.Call(protocol.OpAsk, protocol.Ask{AutosignGrains: grains, Version: l.opts.Version, Challenge: challenge}); err != nil {
		return err
	}
	return l.next(ctx, func(a protocol.AskAnswer) error { return l.checkProof(h, challenge, a) })
}

// Ready reports whether the connection has the rights of an accepted minion.
func (l *Connection) Ready() bool {
	return l.answer.State == protocol.KeyAccepted && !l.answer.Reconnect
}

// State is the state of the minion's key, as last reported by the master.
func (l *Connection) State() protocol.KeyState { return l.answer.State }

// Wait returns when a waiting key was decided about: nil if it was accepted, so that the minion
// should connect again for its rights; an error that wraps ErrRejected, ErrDenied or ErrForgotten;
// another one if the connection ended.
func (l *Connection) Wait(ctx context.Context) error {
	for l.answer.State != protocol.KeyAccepted {
		if err := l.nextWhileKnown(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rejectedHint is what to do about a key that a master rejects. A rule may do that without a record of the key.
const rejectedHint = "delete the public key for this minion on the Salt Master, compare fingerprints, and accept it. If none is there, a rule of the master rejects it (autoreject_file)"

// deniedHint is what to do about a key that is denied, since the master has, or has had, another one of this id.
func deniedHint(id salt.MinionID, fingerprint string) string {
	return fmt.Sprintf("compare fingerprints on the Salt Master with 'salt-key -L -v', delete the other public key for this minion if it is still there, and accept this one: salt-key -a '%s@SHA256:%s' --include-denied", id, fingerprint)
}

// forgottenTime is how long a key whose file is gone is waited for: one that is put elsewhere by hand
// may be gone for a moment.
const forgottenTime = 2 * time.Second

// nextWhileKnown is next that does not wait for long if the master does not know the key any more.
func (l *Connection) nextWhileKnown(ctx context.Context) error {
	if l.answer.State != protocol.KeyFull {
		return l.next(ctx, nil)
	}
	once, cancel := context.WithTimeout(ctx, forgottenTime)
	defer cancel()
	err := l.next(once, nil)
	if err != nil && ctx.Err() == nil && once.Err() != nil {
		return ErrForgotten
	}
	return err
}

// next reads one message about the state of the key. check is called with it before anything
// of it counts; nil checks nothing.
func (l *Connection) next(ctx context.Context, check func(protocol.AskAnswer) error) error {
	var answer protocol.AskAnswer
	if err := l.asking.Decode(ctx, &answer); err != nil {
		return fmt.Errorf("ask the master at %s whether the key is accepted: %w", l.opts.Name, err)
	}
	if check != nil {
		if err := check(answer); err != nil {
			return err
		}
	}
	l.answer = answer
	fingerprint := l.opts.Key.Public().SHA256()
	switch l.answer.State {
	case protocol.KeyRejected:
		return salt.WithHint(fmt.Errorf("%w: %s", ErrRejected, fingerprint), rejectedHint)
	case protocol.KeyDenied:
		return salt.WithHint(fmt.Errorf("%w; this one is %s", ErrDenied, fingerprint), deniedHint(l.opts.ID, fingerprint))
	}
	return nil
}

// unwrapNATS keeps the cause and drops the client library's own text.
func unwrapNATS(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return errors.New("the master closed the connection: it takes no more connections of this key now")
	case errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrSecureConnRequired):
		return errors.New("there is no TLS on that port: is it a master?")
	}
	return err
}
