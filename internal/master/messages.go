package master

import (
	"context"
	"strings"

	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// durable returns when what is stored is on the disk: only then a minion is told, which
// then removes its copy. Who asks for an event or a job waits for that only with
// journal_sync: always.
func (m *Master) durable() error { return m.broker.Store().Flush(journal.Stream) }

// messages implements outbox.Opener: it knows what waits in the outboxes of minions.
type messages struct{ m *Master }

// Quick implements outbox.Opener: a small return of a job that is known.
func (o messages) Quick(msg outbox.Message) bool {
	jid, isReturn := strings.CutPrefix(msg.Op, "ret.")
	return isReturn && len(msg.Body) <= dispatch.MaxInline && o.m.dispatch.Remembers(salt.JID(jid))
}

// Open implements outbox.Opener.
func (o messages) Open(ctx context.Context, id salt.MinionID, msg outbox.Message) (r outbox.Record, err error) {
	switch jid, isReturn := strings.CutPrefix(msg.Op, "ret."); {
	case msg.Op == protocol.OpFire:
		var f protocol.Fire
		if err := readBody(msg, &f); err != nil {
			return r, err
		}
		r.Events, _, err = o.m.minionEvents(id, f)
		return r, err
	case msg.Op == protocol.OpReturn:
		var q protocol.LocalReturn
		if err := readBody(msg, &q); err != nil {
			return r, err
		}
		e, err := o.m.dispatch.LocalReturnEvent(ctx, id, q)
		r.Events = []event.Event{e}
		return r, err
	case msg.Op == outbox.OpRefused:
		var e event.Item
		if err := readBody(msg, &e); err != nil {
			return r, err
		}
		_ = o.m.authz.MinionFire(id, e.Tag) // which writes down what the minion has refused
		return r, nil
	case isReturn:
		return o.m.dispatch.ReadReturn(ctx, id, salt.JID(jid), msg)
	}
	return r, rpc.Errorf(rpc.NotFound, "there is no message %q", msg.Op)
}

func readBody(msg outbox.Message, v any) error {
	if err := msg.Decode(v); err != nil {
		return unreadable(msg, err)
	}
	return nil
}

func unreadable(msg outbox.Message, err error) error {
	return rpc.Errorf(rpc.Usage, "unreadable message %s: %v", msg.Op, err)
}
