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
	s.Handle(bus.RoleMinion, protocol.OpLetters, m.letters)
	s.HandleLots(bus.RoleMinion, protocol.OpLetters, m.letterLot)
	s.Handle(bus.RoleMinion, protocol.OpRoom, m.makeRoom)
	s.Handle(bus.RoleMinion, "ret", m.returned)
	for _, minion := range []bus.Role{bus.RoleMinion, bus.RoleCaller} {
		s.Handle(minion, protocol.OpPillar, m.pillar)
		s.Handle(minion, protocol.OpFire, m.minionFire)
		s.Handle(minion, protocol.OpReturn, m.localReturn)
		s.Handle(minion, protocol.OpPublish, m.peerPublish)
		s.Handle(minion, protocol.OpRun, m.peerRun)
		s.Handle(minion, protocol.OpMine, m.changeMine)
		s.Handle(minion, protocol.OpMineGet, m.readMine)
		s.Handle(minion, protocol.OpFiles, m.listFiles)
		s.Handle(minion, protocol.OpFile, m.sendFile)
		s.Handle(minion, protocol.OpPush, m.push)
		s.Handle(minion, protocol.OpRevoke, m.revoke)
	}
	s.Handle(bus.RoleUser, protocol.OpPublish, m.publish)
	s.Handle(bus.RoleUser, protocol.OpFollow, m.follow)
	s.Handle(bus.RoleUser, protocol.OpRun, m.run)
	s.Handle(bus.RoleUser, protocol.OpLogin, m.login)
	s.Handle(bus.RoleUser, protocol.OpKeyDeed, m.keyDeed)
	m.relay.RegisterClients(s)
	m.relay.Register(s, func(ctx context.Context, i bus.Identity) relay.Asker {
		return m.onBus(ctx, m.localAsker(ctx, i)) // event_acl is about local users
	})
}

// onBus is a local user as the bus of events knows it. With sudo_acl, who came by
// sudo stands for himself there too.
func (m *Master) onBus(ctx context.Context, who asker) relay.Asker {
	uid, name, operator := who.identity.UID(), who.name, who.subject.Operator
	if operator && who.subject.Sudo != "" && m.access.Load().sudo {
		uid, name, operator = m.users.ID(ctx, salt.UserName(who.subject.Sudo)), who.subject.Sudo, false
	}
	a := m.relay.Asker(uid, name, operator)
	a.UID, a.Sudo, a.Source = who.identity.UID(), who.subject.Sudo, who.identity.Source
	return a
}

// minionFire stores events of a minion: none in the tag spaces of the master.
// salt-call without a daemon asks for it; a daemon sends letters.
func (m *Master) minionFire(ctx context.Context, r *bus.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	events, err := m.minionEvents(salt.MinionID(r.From.Name), q)
	if err != nil {
		return err
	}
	fired := protocol.Fired{Outcome: protocol.Stored}
	name := ""
	if q.ID != "" {
		name = event.Escape(r.From.Name) + "/" + event.Escape(q.ID)
	}
	p, err := m.journal.BeginAll(lotOf(events, name, 0))
	if err != nil {
		return err
	}
	if fired.Seq, err = p.Wait(ctx); err != nil {
		return err
	}
	return r.Last(ctx, fired)
}
