package minion

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// register says what answers each request of a local tool, see bus.MinionEndpoints. The
// bus is open to those whom event_acl names, all else to root and the daemon's own user
// only.
func (m *Minion) register() {
	s := m.server
	m.events.Register(s, m.principal)
	s.Handle("localFire", m.localFire)
	s.Handle("passFiles", m.passFiles)
	s.Handle("passOn", m.passOn)
	s.Handle("passReturn", m.passReturn)
	s.Handle("passToMaster", m.passToMaster)
	s.Handle("refresh", m.refresh)
	s.Handle("scheduleRequest", m.scheduleRequest)
	s.Handle("showPillar", m.showPillar)
	s.Handle("status", m.status)
}

// principal is who asks, with the tags that event_acl lets them hear and fire.
func (m *Minion) principal(ctx context.Context, i bus.Identity) eventacl.Principal {
	u := m.users.Lookup(ctx, i.UID())
	return m.events.Rules().User(u.UID, string(u.Name), u.Operator)
}

// authorize lets root and the daemon's own user do what is for nobody else.
func (m *Minion) authorize(ctx context.Context, r *rpc.Request, c bus.Check) decision.Decision {
	who := m.principal(ctx, r.From)
	d := eventacl.ForOperator(who, c, rpc.Errorf(rpc.Denied, "user %s may not do this: it is for root and the minion's own user", who.Name()))
	if d.Err() != nil {
		m.log.Warn("request refused", "op", r.Op, "user", who.Name())
	}
	return d
}

// localFire stores events on the minion's own bus, and passes on those whose tag
// says so. A mistake in one of them refuses them all. Who may fire the tag
// fire_master on this bus speaks for the minion: what is within is not for
// event_acl to judge, but for the master.
func (m *Minion) localFire(ctx context.Context, r *rpc.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := m.principal(ctx, r.From)
	firing := m.events.Rules().Fire(who)
	fired, err := m.fireLocal(ctx, q, local{
		sender: who.Sender, id: repeatID(r.From, requestID(q)), check: firing.Check,
		decide: func() error { return r.Decide(firing.Decide(ctx, len(q.Events))) },
	})
	if err != nil {
		return err
	}
	return r.Last(ctx, fired)
}

// mayConnect says whether a local user gets a connection at all.
func (m *Minion) mayConnect(uid int) bool {
	u := m.users.Lookup(m.ctx, uid)
	return u.Operator || m.events != nil && m.events.Rules().Known(string(u.Name))
}

// passOn sends events to the master's bus for a local tool.
func (m *Minion) passOn(ctx context.Context, r *rpc.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	fired, err := m.fireMaster(ctx, q, repeatID(r.From, requestID(q)))
	if err != nil {
		return err
	}
	return r.Last(ctx, fired)
}

// passReturn sends to the master what salt-call ran.
func (m *Minion) passReturn(ctx context.Context, r *rpc.Request) error {
	var q protocol.LocalReturn
	if err := r.Decode(&q); err != nil {
		return err
	}
	u := m.masters.First()
	if u == nil {
		return nil // master_type disable: nobody is to hear of it
	}
	fired, err := m.box(u).Send(ctx, outbox.Outgoing{Op: protocol.OpReturn, Body: q, ID: repeatID(r.From, string(q.JID))})
	if err != nil {
		return err
	}
	return r.Last(ctx, fired)
}

// refresh finds out anew, for salt-call, what the next job is to see.
func (m *Minion) refresh(ctx context.Context, r *rpc.Request) error {
	var q protocol.Refresh
	if err := r.Decode(&q); err != nil {
		return err
	}
	var failed error
	if q.Grains {
		failed = m.refreshGrains(ctx)
	}
	if q.Pillar {
		failed = errors.Join(failed, m.masters.RefreshPillar(ctx))
	}
	if failed != nil {
		return rpc.Errorf(rpc.Unavailable, "%w", failed) // an operator may know why
	}
	return nil
}

func (m *Minion) status(ctx context.Context, r *rpc.Request) error {
	facts, err := m.grains.get(ctx)
	if err != nil {
		m.log.Debug("facts are incomplete", "err", err)
	}
	s := protocol.Status{ID: m.id, Version: m.version, Grains: value.Value{V: facts}}
	for _, u := range m.masters.All() {
		one := m.masterStatus(u)
		s.Masters = append(s.Masters, one)
		s.Outbox += one.Outbox
		s.OutboxLost += m.box(u).Lost()
		if one.Connected && !s.Connected {
			s.Master, s.Connected = one.Master, true
		}
	}
	if !s.Connected && len(s.Masters) > 0 {
		s.Waiting = s.Masters[0].Waiting
	}
	return r.Send(ctx, s)
}

func (m *Minion) masterStatus(u *upstream.Uplink) protocol.MasterStatus {
	s := protocol.MasterStatus{Master: u.Name(), Connected: u.Session() != nil, Outbox: m.box(u).Waiting()}
	if !s.Connected {
		s.Waiting = u.Waiting()
	}
	return s
}
