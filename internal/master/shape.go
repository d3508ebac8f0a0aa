package master

import (
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// maxFired is how many events a minion may fire with one request.
const maxFired = 10_000

// minionEvents gives a minion's events the shapes of Salt's master. All are looked
// at: one that the minion may not fire, or that is too large, refuses the batch. The
// same request gives the same events again.
func (m *Master) minionEvents(id salt.MinionID, f protocol.Fire) (_ []event.Event, d decision.Decision, err error) {
	switch n := len(f.Events); {
	case n == 0:
		return nil, d, rpc.Errorf(rpc.Usage, "there is no event to fire")
	case f.Live:
		return nil, d, rpc.Errorf(rpc.Usage, "events of minions are stored")
	case n > maxFired:
		return nil, d, rpc.Errorf(rpc.Usage, "%d events at once: the limit is %d", n, maxFired)
	}
	items, err := shape(id, f)
	if err != nil {
		return nil, d, rpc.Errorf(rpc.Usage, "%v", err)
	}
	now := time.Now()
	events := make([]event.Event, len(items))
	for i, item := range items {
		if d = m.authz.MinionFire(id, item.Tag); d.Err() != nil {
			return nil, d, d.Err()
		}
		if limit := m.cfg.MaxEventSize; limit > 0 && int64(len(item.Data)) > limit {
			return nil, d, rpc.Errorf(rpc.Usage, "event %q has %d bytes of data: the limit is %d", item.Tag, len(item.Data), limit).
				WithHint("max_event_size in the master's configuration is the limit")
		}
		if events[i], err = event.New(item.Tag, item.Data, string(id), now); err != nil {
			return nil, d, rpc.Errorf(rpc.Usage, "%v", err)
		}
	}
	return events, d, nil
}

func shape(id salt.MinionID, f protocol.Fire) ([]event.Item, error) {
	return event.Forward{Single: f.Form == protocol.FormSingle, Pretag: f.Pretag, Items: f.Events}.Shape(id)
}
