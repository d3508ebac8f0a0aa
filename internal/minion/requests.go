package minion

import (
	"context"

	"brine/internal/bus"
	"brine/internal/event"
	"brine/internal/protocol"
	"brine/internal/value"
)

// register says what local tools may ask. The broker lets in root and the
// daemon's own user only, so no handler asks again who it is.
func (m *Minion) register() {
	s := m.server
	s.Handle(bus.RoleUser, protocol.OpFire, m.localFire)
	s.Handle(bus.RoleUser, protocol.OpListen, m.localListen)
	s.Handle(bus.RoleUser, protocol.OpMaster, m.passOn)
	s.Handle(bus.RoleUser, protocol.OpReturn, m.passReturn)
	s.Handle(bus.RoleUser, protocol.OpStatus, m.status)
}

// localFire stores events on the minion's own bus.
func (m *Minion) localFire(ctx context.Context, r *bus.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	name := string(m.users.Lookup(ctx, r.From.UID()).Name)
	fired, err := m.relay.Fire(ctx, q, "user:"+name, event.CheckTag)
	if err != nil {
		return err
	}
	return r.Send(ctx, fired)
}

func (m *Minion) localListen(ctx context.Context, r *bus.Request) error {
	return m.relay.Listen(ctx, r, func(string) bool { return true })
}

// passOn sends events to the master's bus for a local tool.
func (m *Minion) passOn(ctx context.Context, r *bus.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	fired, err := m.fireMaster(ctx, q)
	if err != nil {
		return err
	}
	return r.Send(ctx, fired)
}

// passReturn sends to the master what salt-call ran.
func (m *Minion) passReturn(ctx context.Context, r *bus.Request) error {
	var q protocol.LocalReturn
	if err := r.Decode(&q); err != nil {
		return err
	}
	outcome, err := m.outbox.send(ctx, protocol.OpReturn, q, nil)
	if err != nil {
		return err
	}
	return r.Send(ctx, protocol.Fired{Outcome: outcome})
}

func (m *Minion) status(ctx context.Context, r *bus.Request) error {
	facts, err := m.grains.get(ctx)
	if err != nil {
		m.log.Debug("facts are incomplete", "err", err)
	}
	s := protocol.Status{ID: m.id, Version: m.version, Outbox: uint64(max(m.outbox.waiting.Load(), 0)), Grains: value.Value{V: facts}}
	if now := m.link.Load(); now != nil {
		s.Master, s.Connected = now.address, true
	} else if w := m.waiting.Load(); w != nil {
		s.Waiting = *w
	}
	return r.Send(ctx, s)
}
