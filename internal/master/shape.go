package master

import (
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// maxFired is how many events a minion may fire with one request.
const maxFired = 10_000

// minionEvents gives a minion's events the shapes of Salt's master. All are looked
// at: one that the minion may not fire, or that is too large, refuses the lot. The
// same request gives the same events again.
func (m *Master) minionEvents(id salt.MinionID, f protocol.Fire) ([]event.Event, error) {
	switch n := len(f.Events); {
	case n == 0:
		return nil, rpc.Errorf(rpc.Usage, "there is no event to fire")
	case f.Live:
		return nil, rpc.Errorf(rpc.Usage, "events of minions are stored")
	case n > maxFired:
		return nil, rpc.Errorf(rpc.Usage, "%d events at once: the limit is %d", n, maxFired)
	}
	items, err := shape(id, f)
	if err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	now := time.Now()
	events := make([]event.Event, len(items))
	for i, item := range items {
		if err := event.CheckMinionTag(id, item.Tag); err != nil {
			m.eventRefused(id, item.Tag, err)
			return nil, rpc.Errorf(rpc.Denied, "minion %s may not fire this event: %v", id, err)
		}
		if limit := m.cfg.MaxEventSize; limit > 0 && int64(len(item.Data)) > limit {
			return nil, rpc.Errorf(rpc.Usage, "event %q has %d bytes of data: the limit is %d", item.Tag, len(item.Data), limit).
				WithHint("max_event_size in the master's configuration is the limit")
		}
		if events[i], err = event.New(item.Tag, item.Data, string(id), now); err != nil {
			return nil, rpc.Errorf(rpc.Usage, "%v", err)
		}
	}
	return events, nil
}

// eventRefused tells the log and the audit trail of an event that a minion may not
// fire.
func (m *Master) eventRefused(id salt.MinionID, tag string, err error) {
	if m.trail.Note(audit.Entry{Kind: audit.Fire, Who: audit.Who{Minion: string(id)}, Fun: "event.fire_master", Tags: []string{tag}, Reason: err.Error()}) {
		m.log.Warn("event refused", "minion", id, "tag", tag, "err", err)
	}
}

func shape(id salt.MinionID, f protocol.Fire) ([]event.Item, error) {
	forward := event.Forward{Single: f.Form == protocol.FormSingle, Pretag: f.Pretag, Items: make([]event.Item, len(f.Events))}
	for i, e := range f.Events {
		forward.Items[i] = event.Item(e)
	}
	return forward.Shape(id)
}
