package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Pauses and limits of dialling routes.
const (
	dialTimeout = 2 * time.Second
	// A member that is down is dialled again after these pauses. When it is back, it also dials.
	dialFirst   = 50 * time.Millisecond
	dialLongest = 2 * time.Second
	// refusedLongest is the longest pause after a refusal, or if the port is not one of members:
	// somebody has to change something first.
	refusedFirst   = time.Second
	refusedLongest = 30 * time.Second
	// selfPause is for the own address, which may become that of another member.
	selfPause = 5 * time.Minute
	// brief is the longest time that a route lasts if the other end refuses it: the refusal
	// arrives after this end has finished its handshake.
	brief = 3 * time.Second
)

// errNotThere is why a peer could not be reached at all.
var errNotThere = errors.New("not reached")

// keep keeps a route to the member at this address.
func (r *routes) keep(ctx context.Context, peer string) {
	var pauses backoff.Pauses
	var known pki.PublicKey // of the member that was last connected there
	for ctx.Err() == nil {
		if !r.waitUnlinked(ctx, known) {
			return
		}
		met, err := r.dial(ctx, peer)
		if ctx.Err() != nil {
			return
		}
		known = met
		r.note(peer, err)
		var pause time.Duration
		switch {
		case err == nil:
			pauses.Reset()
			pause = dialFirst
		case errors.Is(err, errSelfThrough):
			pause = refusedLongest // others may lead there what is meant for another member
		case errors.Is(err, errSelf):
			pause = selfPause
		case errors.Is(err, errNotThere):
			pause = pauses.Next(dialFirst, dialLongest)
		default:
			pause = pauses.Next(refusedFirst, refusedLongest)
		}
		// If both ends dial at once and each prefers the other's connection, none remains: they
		// must not dial again at the same time.
		if !backoff.Sleep(ctx, pause+rand.N(pause)) {
			return
		}
	}
}

// waitUnlinked waits while there is a route to this member; it returns false if ctx ends.
func (r *routes) waitUnlinked(ctx context.Context, key pki.PublicKey) bool {
	for !key.IsZero() {
		linked, changed := r.linked(key)
		if !linked {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// dial makes a route and returns after its end, with the key of the member there. It returns an
// error if there was none.
func (r *routes) dial(ctx context.Context, peer string) (pki.PublicKey, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	c, err := d.DialContext(ctx, "tcp", peer)
	if err != nil {
		return pki.PublicKey{}, fmt.Errorf("%w: %w", errNotThere, err)
	}
	e := &routeEnd{Conn: c, routes: r, name: newName(), gone: make(chan struct{})}
	r.mu.Lock()
	r.dialled[e.name] = e
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { e.Close() })
	defer stop()
	begun := time.Now()
	// The server does not dial an address again that it does not have as one of its routes.
	handed := serveRoute(r.server, e, &url.URL{Scheme: "nats-route", Host: net.JoinHostPort(e.name, "1")}, server.Explicit, gossipDisabled, "") != nil
	if !handed {
		e.Close()
		return pki.PublicKey{}, r.reason(e)
	}
	r.mu.Lock()
	own := e.own
	r.mu.Unlock()
	if own {
		e.Close()
		return pki.PublicKey{}, errSelfThrough
	}
	if err := r.take(e); err != nil {
		e.Close()
		return pki.PublicKey{}, err
	}
	r.met(peer, e)
	<-e.gone
	r.mu.Lock()
	key, name := e.member.Key, e.member.Name
	r.mu.Unlock()
	if linked, _ := r.linked(key); linked || time.Since(begun) > brief {
		return key, nil
	}
	return key, salt.WithHint(fmt.Errorf("%.80q ended the connection after the handshake: it refuses this member, or it stops", name), "its log says why; is the key of this member in its list of removed ones, or has another member the same name (cluster_advertise)?")
}

// reason returns why a handshake failed.
func (r *routes) reason(e *routeEnd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.err != nil:
		return e.err
	case string(e.head) == "INFO ":
		return salt.WithHint(errors.New("it is a port for minions and clients, not one for members"), "cluster_peers names the cluster_port of each member, not its ret_port")
	case len(e.head) > 0 && e.head[0] != recordHandshake && e.head[0] != recordAlert:
		return salt.WithHint(errors.New("it does not speak TLS, so it is not the port of a member"), "cluster_peers names the cluster_port of each member")
	}
	return fmt.Errorf("the handshake failed: %w", errNotThere)
}

// Kinds of the first record of a TLS connection.
const (
	recordAlert     = 21
	recordHandshake = 22
)

// met records which member is at an address.
func (r *routes) met(peer string, e *routeEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[peer]
	p.Name, p.Self, p.Err = e.member.Name, false, nil
}

// note records and logs why there is no route to an address.
func (r *routes) note(peer string, err error) {
	self := errors.Is(err, errSelf)
	r.mu.Lock()
	p := r.peers[peer]
	news := self && !p.Self
	p.Self, p.Err = self, err
	if self {
		p.Name, p.Err = r.opts.Rule.Card.Name, nil
	}
	r.mu.Unlock()
	if news && errors.Is(err, errSelfThrough) {
		r.log.Info("this member reaches itself under another address", "peer", peer)
	}
	if err != nil && !self {
		r.throttle.Log(r.log, slog.LevelWarn, peer+err.Error(), 1, "another member is not reached", append([]any{"peer", peer, "err", err}, hintOf(err)...)...)
	}
}

// hintOf is the attribute of a log line for the hint of an error, if it has one.
func hintOf(err error) []any {
	if hint := salt.Hint(err); hint != "" {
		return []any{"hint", hint}
	}
	return nil
}
