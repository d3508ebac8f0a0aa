package outbox

import (
	"context"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Returns provides the jobs that returns belong to.
type Returns interface {
	// Quick reports whether a return of this size becomes at most one event, and can be read
	// without waiting.
	Quick(jid salt.JID, size int) bool
	// Awaits reports whether a running member of a cluster has sent a job and waits for the return of
	// this minion, or has it; and whether that is this one. Then no other member has stored it.
	// With ask it asks the others about a job that it does not know: it knows those that the minion had not
	// finished when it connected.
	Awaits(ctx context.Context, from salt.MinionID, jid salt.JID, ask bool) (awaits, here bool)
	// WithoutQuorum returns why nothing can be stored, if jobs are started nevertheless; otherwise nil. Show
	// shows a return of such a job to those who wait for it.
	WithoutQuorum() error
	Show(from salt.MinionID, jid salt.JID, m Message)
	// Arrived says that a minion has sent the returns of these jobs, until end is called or ctx ends: nobody who
	// waits for them gives the minion up because they cannot be stored yet.
	Arrived(ctx context.Context, from salt.MinionID, jids []salt.JID) (end func())
	// ReadReturn reads a return of a job.
	ReadReturn(ctx context.Context, from salt.MinionID, jid salt.JID, m Message) (Record, error)
	// StoreEarly stores a return that is awaited, at the member that has sent the job: if that is this one, in
	// this term of the journal. It is stored under a name that ReadReturn gives it, too.
	StoreEarly(ctx context.Context, from salt.MinionID, jid salt.JID, m Message, term uint64) error
	// LocalReturnEvent is the event for what a minion has run by itself.
	LocalReturnEvent(ctx context.Context, from salt.MinionID, q protocol.LocalReturn) (event.Event, error)
}

// TagSpaces decides which events minions may fire, and records refusals.
type TagSpaces interface {
	MinionFire(from salt.MinionID, tags ...string) decision.Decision
}

// quickOne reports whether a message becomes at most one event and can be read without waiting:
// such messages of many minions are stored together.
func (r *Receiver) quickOne(m Message) bool {
	jid, isReturn := strings.CutPrefix(m.Op, "ret.")
	return isReturn && r.Returns.Quick(salt.JID(jid), len(m.Body))
}

// read returns what a message becomes. A permanent [rpc.Error] refuses it finally: the same
// message would be refused again. After any other error it stays in the minion's outbox.
func (r *Receiver) read(ctx context.Context, id salt.MinionID, m Message) (rec Record, err error) {
	switch jid, isReturn := strings.CutPrefix(m.Op, "ret."); {
	case m.Op == protocol.OpFire:
		var f protocol.Fire
		if err := readBody(m, &f); err != nil {
			return rec, err
		}
		rec.Events, _, err = r.events(id, f)
		return rec, err
	case m.Op == protocol.OpReturn:
		var q protocol.LocalReturn
		if err := readBody(m, &q); err != nil {
			return rec, err
		}
		e, err := r.Returns.LocalReturnEvent(ctx, id, q)
		rec.Events = []event.Event{e}
		return rec, err
	case m.Op == OpRefused:
		var e event.Item
		if err := readBody(m, &e); err != nil {
			return rec, err
		}
		_ = r.TagSpaces.MinionFire(id, e.Tag) // this records what the minion has refused
		return rec, nil
	case isReturn:
		return r.Returns.ReadReturn(ctx, id, salt.JID(jid), m)
	}
	return rec, rpc.Errorf(rpc.NotFound, "there is no message %q", m.Op)
}

func readBody(m Message, v any) error {
	if err := m.Decode(v); err != nil {
		return rpc.Errorf(rpc.Usage, "unreadable message %s: %v", m.Op, err)
	}
	return nil
}

// maxFired is how many events a minion may fire with one request.
const maxFired = 10_000

// events gives a minion's events the form of Salt's master. All are checked: one that the
// minion may not fire, or that is too large, refuses the request. The same request always gives
// the same events.
func (r *Receiver) events(id salt.MinionID, f protocol.Fire) (_ []event.Event, d decision.Decision, err error) {
	switch n := len(f.Events); {
	case n == 0:
		return nil, d, rpc.Errorf(rpc.Usage, "there is no event to fire")
	case f.Live:
		return nil, d, rpc.Errorf(rpc.Usage, "events of minions are stored")
	case n > maxFired:
		return nil, d, rpc.Errorf(rpc.Usage, "%d events at once: the limit is %d", n, maxFired)
	}
	items, err := event.Forward{Single: f.Form == protocol.FormSingle, Pretag: f.Pretag, Items: f.Events}.Shape(id)
	if err != nil {
		return nil, d, rpc.Errorf(rpc.Usage, "%v", err)
	}
	now := time.Now()
	events := make([]event.Event, len(items))
	for i, item := range items {
		if d = r.TagSpaces.MinionFire(id, item.Tag); d.Err() != nil {
			return nil, d, d.Err()
		}
		if limit := r.MaxEventSize; limit > 0 && int64(len(item.Data)) > limit {
			return nil, d, rpc.Errorf(rpc.Usage, "event %q has %d bytes of data: the limit is %d", item.Tag, len(item.Data), limit).
				WithHint("max_event_size in the master's configuration is the limit")
		}
		if events[i], err = event.NewValid(item.Tag, item.Data, string(id), now); err != nil {
			return nil, d, rpc.Errorf(rpc.Usage, "%v", err)
		}
	}
	return events, d, nil
}

// Fire stores events of a minion, none of them in the tag spaces of the master. salt-call
// without a daemon uses it; a daemon sends events through its outbox.
func (r *Receiver) Fire(ctx context.Context, req *rpc.Request) error {
	var q protocol.Fire
	if err := req.Decode(&q); err != nil {
		return err
	}
	events, d, err := r.events(salt.MinionID(req.From.Name), q)
	if err != nil {
		return err
	}
	if err := req.Decide(d); err != nil {
		return err
	}
	fired := protocol.Fired{Outcome: protocol.Stored}
	name := ""
	if q.ID != "" {
		name = event.Escape(req.From.Name) + "/" + event.Escape(q.ID)
	}
	p, err := r.Journal.BeginAll(drafts(events, name, 0, 0))
	if err != nil {
		return err
	}
	if fired.Seq, err = p.Wait(ctx); err == nil {
		err = r.Durable()
	}
	if err != nil {
		return err
	}
	return req.Last(ctx, fired)
}
