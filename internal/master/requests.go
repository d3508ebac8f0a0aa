package master

import (
	"context"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
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
		"ask":         m.admission.Ask, // the key of anybody
		"changeMine":  m.fleet.ChangeMine,
		"follow":      m.follow,
		"grains":      m.fleet.Refresh,
		"hello":       m.hello,
		"keyAction":   m.admission.KeyAction,
		"letters":     m.outboxes.Deliver,
		"listFiles":   m.listFiles,
		"localReturn": m.dispatch.LocalReturn,
		"login":       m.authz.Logins.Login,
		"makeRoom":    m.outboxes.Reserve,
		"minionFire":  m.minionFire,
		"peerPublish": m.peerPublish,
		"peerRun":     m.runners.PeerRun,
		"pillar":      m.fleet.SendPillar,
		"publish":     m.publish,
		"push":        m.push,
		"readMine":    m.fleet.ReadMine,
		"returned":    m.dispatch.Returned,
		"revoke":      m.admission.Revoke,
		"run":         m.runners.Run,
		"sendFile":    m.sendFile,
	} {
		s.Handle(name, h)
	}
	s.HandleBatches("letters", m.outboxes.DeliverEach)
	local := func(ctx context.Context, i bus.Identity) eventacl.Principal {
		return m.authz.OnBus(ctx, m.authz.Principal(ctx, i))
	}
	m.events.SetWhile(func(ctx context.Context, i bus.Identity, f func(context.Context) error) error {
		who := m.authz.Principal(ctx, i)
		if err := who.Refused(); err != nil {
			return err
		}
		return m.authz.Logins.While(ctx, who, f)
	})
	m.events.RegisterClients(s, local)
	m.events.Register(s, local)
	m.events.RegisterFire(s, local)
}

// minionFire stores events of a minion: none in the tag spaces of the master.
// salt-call without a daemon asks for it; a daemon sends what is in its outbox.
func (m *Master) minionFire(ctx context.Context, r *rpc.Request) error {
	var q protocol.Fire
	if err := r.Decode(&q); err != nil {
		return err
	}
	events, d, err := m.minionEvents(salt.MinionID(r.From.Name), q)
	if err != nil {
		return err
	}
	if err := r.Decide(d); err != nil {
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
