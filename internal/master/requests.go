package master

import (
	"context"

	"brine/internal/bus"
	"brine/internal/event"
	"brine/internal/protocol"
	"brine/internal/relay"
	"brine/internal/salt"
)

// register says who may ask for what. What is not here is not served; each
// handler for a user asks permit first.
func (m *Master) register() {
	s := m.server
	s.Handle(bus.RoleStranger, protocol.OpAsk, m.ask) // the key of anybody
	s.Handle(bus.RoleMinion, protocol.OpHello, m.hello)
	s.Handle(bus.RoleMinion, protocol.OpGrains, m.grains)
	s.Handle(bus.RoleMinion, protocol.OpPillar, m.pillar)
	s.Handle(bus.RoleMinion, protocol.OpFire, m.minionFire)
	s.Handle(bus.RoleMinion, protocol.OpReturn, m.localReturn)
	s.Handle(bus.RoleMinion, "ret", m.returned)
	s.Handle(bus.RoleUser, protocol.OpPublish, m.publish)
	s.Handle(bus.RoleUser, protocol.OpRun, m.run)
	m.relay.Register(s, func(ctx context.Context, i bus.Identity) relay.Asker {
		who := m.asker(ctx, i)
		return m.relay.Asker(i.UID(), who.name, who.subject.Operator)
	})
}

// minionFire stores events of a minion: none in the tag spaces of the master.
func (m *Master) minionFire(ctx context.Context, r *bus.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	id := salt.MinionID(r.From.Name)
	q, err := shape(id, q)
	if err != nil {
		return err
	}
	fired, err := m.relay.Fire(ctx, q, string(id), func(tag string) error {
		if err := event.CheckMinionTag(id, tag); err != nil {
			m.log.Warn("event refused", "minion", id, "tag", tag, "err", err)
			return bus.Errorf(bus.Denied, "minion %s may not fire this event: %v", id, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.Send(ctx, fired)
}
