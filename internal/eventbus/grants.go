package eventbus

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Rules returns the rules about who may fire and listen.
func (r *Bus) Rules() *eventacl.Rules { return r.rules }

// SetGrants puts the rules for ordinary users in force, also for present listeners: their
// answers end, and they reconnect under the new rules. The same goes for operators through
// sudo, who may no longer be operators.
func (r *Bus) SetGrants(g *event.Grants) {
	r.rules.Set(g)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes.Add(1)
	for _, l := range r.listeners {
		l.askAnew()
	}
}

// askAnew ends the answer to a listener whose rules are out of date.
func (l *listener) askAnew() {
	if !l.who.Operator() || l.who.Sudo != "" {
		l.recall()
	}
}

// FireFor stores the events of a local user, or only sends them to listeners if they are not to
// be stored, if each tag is granted.
func (r *Bus) FireFor(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	var q protocol.Fire
	if err := req.Decode(&q); err != nil {
		return err
	}
	firing := r.rules.Fire(who)
	if err := r.Look(q, firing.Check); err != nil {
		return err
	}
	if err := req.Decide(firing.Decide(ctx, len(q.Events))); err != nil {
		return err
	}
	fired, err := putInformed(ctx, r, req, q, who.Sender)
	if err != nil {
		return err
	}
	return req.Last(ctx, fired)
}

// putInformed is Put for a user who is told when the events have to wait for an election.
func putInformed(ctx context.Context, r *Bus, req *rpc.Request, q protocol.Fire, from string) (fired protocol.Fired, err error) {
	if r.member == nil || !q.Waiting || q.Live {
		return r.Put(ctx, q, from)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fired, err = r.Put(ctx, q, from)
	}()
	tell := time.NewTimer(protocol.TellTime)
	defer tell.Stop()
	select {
	case <-done:
		return fired, err
	case <-tell.C:
	}
	_ = req.Send(ctx, protocol.Fired{Waiting: protocol.Electing}) // a user who is gone is noticed later
	<-done
	return fired, err
}
