package master

import (
	"context"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// register says what answers each request, see bus.MasterEndpoints: what has no row
// there is not served.
func (m *Master) register() {
	s := m.server
	for name, h := range map[string]rpc.Handler{
		"ask":         m.ask, // the key of anybody
		"changeMine":  m.fleet.ChangeMine,
		"follow":      m.follow,
		"grains":      m.fleet.Refresh,
		"hello":       m.hello,
		"keyAction":   m.keyAction,
		"letters":     m.outboxes.Deliver,
		"listFiles":   m.listFiles,
		"localReturn": m.dispatch.LocalReturn,
		"login":       m.login,
		"makeRoom":    m.outboxes.Reserve,
		"minionFire":  m.minionFire,
		"peerPublish": m.peerPublish,
		"peerRun":     m.peerRun,
		"pillar":      m.fleet.SendPillar,
		"publish":     m.publish,
		"push":        m.push,
		"readMine":    m.fleet.ReadMine,
		"returned":    m.dispatch.Returned,
		"revoke":      m.revoke,
		"run":         m.run,
		"sendFile":    m.sendFile,
	} {
		s.Handle(name, h)
	}
	s.HandleLots("letters", m.outboxes.DeliverEach)
	local := func(ctx context.Context, i bus.Identity) eventbus.Principal {
		return m.onBus(ctx, m.asker(ctx, i))
	}
	m.events.SetWhile(func(ctx context.Context, i bus.Identity, f func(context.Context) error) error {
		who := m.asker(ctx, i)
		if who.refused != nil {
			return who.refused
		}
		return m.whileGood(ctx, who, f)
	})
	m.events.RegisterClients(s)
	m.events.Register(s, local)
	m.events.RegisterFire(s, local)
}

// authorize decides what needs nothing of a request but who sends it.
func (m *Master) authorize(ctx context.Context, r *rpc.Request, c bus.Check) error {
	switch c {
	case bus.Operator:
		return m.operatorOnly(ctx, r)
	case bus.FileRecv:
		return m.mayPush(r)
	case bus.KeyRevoke:
		if m.cfg.AllowMinionKeyRevoke {
			return nil
		}
		return rpc.Errorf(rpc.Denied, "this master does not let minions revoke their keys (allow_minion_key_revoke)")
	}
	return rpc.Errorf(rpc.Denied, "nobody may do this")
}

// operatorOnly refuses everybody but root and the daemon's own user.
func (m *Master) operatorOnly(ctx context.Context, r *rpc.Request) error {
	who := m.asker(ctx, r.From)
	if who.subject.Operator {
		return nil
	}
	reason := "it is for root and the master's own user"
	if m.trail.Note(audit.Entry{Kind: audit.Key, Who: who.who(), Fun: "bus." + r.Op, Reason: reason}) {
		m.log.Warn("request refused", "op", r.Op, "user", who.name, "reason", reason)
	}
	return rpc.Errorf(rpc.Denied, "user %s may not do this (%s): %s", who.name, r.Op, reason).WithHint("root may do this")
}

// onBus is a user as the bus of events knows it. With sudo_acl, who came by
// sudo stands for himself there too; a login replaces what the kernel says.
func (m *Master) onBus(ctx context.Context, who asker) eventbus.Principal {
	switch {
	case who.refused != nil:
		return m.events.External(who.identity.UID(), "ended", who.name) // nobody's rules
	case who.login != nil:
		a := m.events.External(who.identity.UID(), who.login.Backend, who.login.Name)
		a.Source = who.identity.Source
		return a
	}
	uid, name, operator := who.identity.UID(), who.name, who.subject.Operator
	if operator && who.subject.Sudo != "" && m.access.Load().sudo {
		uid, name, operator = m.users.ID(ctx, salt.UserName(who.subject.Sudo)), who.subject.Sudo, false
	}
	a := m.events.Principal(uid, name, operator)
	a.UID, a.Sudo, a.Source = who.identity.UID(), who.subject.Sudo, who.identity.Source
	return a
}

// minionFire stores events of a minion: none in the tag spaces of the master.
// salt-call without a daemon asks for it; a daemon sends what is in its outbox.
func (m *Master) minionFire(ctx context.Context, r *rpc.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	events, err := m.minionEvents(salt.MinionID(r.From.Name), q)
	if r.Decide(err) != nil {
		return err
	}
	fired := protocol.Fired{Outcome: protocol.Stored}
	name := ""
	if q.ID != "" {
		name = event.Escape(r.From.Name) + "/" + event.Escape(q.ID)
	}
	p, err := m.journal.BeginAll(outbox.Drafts(events, name, 0))
	if err != nil {
		return err
	}
	if fired.Seq, err = p.Wait(ctx); err == nil {
		err = m.durable()
	}
	if err != nil {
		return err
	}
	return r.Last(ctx, fired)
}
