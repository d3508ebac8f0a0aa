package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backoff"
)

// Remote is the store of a master whose journal is in the JetStream of servers that others run; it
// implements journal.Remote. The operators of these servers decide when messages are synced, and
// look for damage.
//
// After a connection was lost, another master may have taken over: a new connection is used only
// when Check says that none has.
type Remote struct {
	x       *External
	delays  delays
	endTime time.Duration // the constant

	mu     sync.Mutex
	check  func(context.Context) error // nil before Watch
	usable chan struct{}               // closed while the connection may be used
	made   int                         // how often a connection was begun
	over   error                       // why it is not used any more
	ended  chan struct{}               // closed with over
	away   error                       // why nothing can be stored now
	failed chan struct{}               // closed while there is one of the two
}

// remotePause is the pause before another attempt to find out who writes the journal, or who is connected to it.
const remotePause = 100 * time.Millisecond

func newRemote(x *External) *Remote {
	return &Remote{x: x, delays: delays{log: x.log}, endTime: endTime, usable: make(chan struct{}), ended: make(chan struct{}), failed: make(chan struct{})}
}

// Journal returns the connection for the journal, and its store; nil without one.
func (x *External) Journal() (*nats.Conn, *Remote) { return x.store, x.remote }

// Dial implements nats.CustomDialer. Nothing is written over the new connection before it was
// checked.
func (r *Remote) Dial(network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.made++
	select {
	case <-r.usable:
		r.usable = make(chan struct{})
	default:
	}
	r.mu.Unlock()
	return (&net.Dialer{Timeout: externalTimeout}).Dial(network, address)
}

// connected is called when a connection is there.
func (r *Remote) connected() {
	r.mu.Lock()
	made := r.made
	r.mu.Unlock()
	r.x.wg.Go(func() { r.examine(made) })
}

// Watch has check called after each new connection: it returns nil if this master is still the one
// that writes the journal, an error that wraps final if it is not.
func (r *Remote) Watch(check func(context.Context) error, final error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check = func(ctx context.Context) error {
		err := check(ctx)
		if errors.Is(err, final) {
			r.End(err)
		}
		return err
	}
}

// examine lets the connection be used, if it is still the newest one.
func (r *Remote) examine(made int) {
	for pause := time.Duration(0); ; pause = remotePause {
		select {
		case <-r.x.stop:
			return
		case <-r.ended:
			return
		case <-time.After(pause):
		}
		r.mu.Lock()
		check, newest := r.check, r.made == made
		r.mu.Unlock()
		if !newest {
			return
		}
		if check == nil || r.allowed(check) {
			r.allow(made)
			return
		}
	}
}

// allow lets the connection be used, unless another one was begun meanwhile.
func (r *Remote) allow(made int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made != made {
		return
	}
	select {
	case <-r.usable:
	default:
		close(r.usable)
	}
}

func (r *Remote) allowed(check func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), externalTimeout)
	defer cancel()
	return check(ctx) == nil
}

// End has everything fail from now on.
func (r *Remote) End(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over != nil {
		return
	}
	r.over = err
	close(r.ended)
	if r.away == nil {
		close(r.failed)
	}
}

// Away has everything that is to be stored fail until it is called again, with nil.
func (r *Remote) Away(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over != nil:
	case err != nil && r.away == nil:
		r.away = err
		close(r.failed)
	case err == nil && r.away != nil:
		r.away, r.failed = nil, make(chan struct{})
	}
}

// Usable implements journal.Remote.
func (r *Remote) Usable(ctx context.Context) error {
	for {
		r.mu.Lock()
		usable := r.usable
		r.mu.Unlock()
		select {
		case <-usable:
			return nil
		case <-r.ended:
			return r.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Failed implements journal.Store.
func (r *Remote) Failed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Err implements journal.Store.
func (r *Remote) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.over, r.away)
}

// Sync implements journal.Store: what is acknowledged is stored by most of the servers.
func (*Remote) Sync(string) error { return nil }

// Flush returns when everything acknowledged is stored, as Sync.
func (*Remote) Flush(string) error { return nil }

// Waits implements journal.Store.
func (*Remote) Waits() bool { return false }

// Soon implements journal.Store.
func (*Remote) Soon(string) {}

// Room implements journal.Store: a full disk is an affair of the servers.
func (*Remote) Room(string, uint64) error { return nil }

// Late implements journal.Delays.
func (r *Remote) Late(what string, waited time.Duration) { r.delays.Late(what, waited) }

// endTime is how long the end of connections of other masters is waited for, and endAnswer how long a
// server may take each time to say who is connected.
const (
	endTime   = 5 * time.Second
	endAnswer = time.Second
)

// EndOthers ends the connections that other masters still have to the journal, and returns when
// the servers show none. A server that does not answer has no part in what is stored; but if none
// does, nothing is known.
func (r *Remote) EndOthers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.endTime)
	defer cancel()
	for {
		found, answered := r.endOthers(ctx)
		// At the end of ctx the answers that are missing prove nothing.
		if found == 0 && answered > 0 && ctx.Err() == nil {
			return nil
		}
		if !backoff.Sleep(ctx, remotePause) {
			return fmt.Errorf("the NATS servers do not show within %s that no other master is connected to the journal: %w", r.endTime, ctx.Err())
		}
	}
}

// endOthers asks each server once, and returns how many connections of others there were, and how many
// servers have answered.
func (r *Remote) endOthers(ctx context.Context) (found, answered int) {
	x := r.x
	for _, id := range x.find(ctx) {
		asking, cancel := context.WithTimeout(ctx, endAnswer)
		list, err := r.connections(asking, id)
		cancel()
		if err != nil {
			x.log.Warn("a NATS server does not say who is connected to the journal", "server", id, "err", err)
			continue
		}
		answered++
		for _, p := range list {
			found++
			x.kick(p)
		}
	}
	return found, answered
}

// connections returns the connections to the journal at a server, without the own one.
func (r *Remote) connections(ctx context.Context, id string) (list []place, err error) {
	x := r.x
	own, err := x.store.GetClientID()
	if err != nil {
		return nil, err
	}
	var page struct{ Data *server.Connz }
	q := server.ConnzOptions{Username: true, Account: storeAccount, Limit: connzPage}
	if err := x.ask(ctx, "$SYS.REQ.SERVER."+id+".CONNZ", q, &page); err != nil {
		return nil, err
	}
	if page.Data == nil {
		return nil, errors.New("it has not answered with a list")
	}
	for _, c := range page.Data.Conns {
		if c.Cid != own || id != x.store.ConnectedServerId() {
			list = append(list, place{id, c.Cid})
		}
	}
	return list, nil
}
