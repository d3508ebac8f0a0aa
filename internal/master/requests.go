package master

import (
	"context"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/rpc"
)

// register says what answers each request, see bus.MasterEndpoints: what has no row
// there is not served.
func (m *Master) register() {
	s, jobs := m.server, dispatch.NewRequests(m.dispatch, m.authz)
	for name, h := range map[string]rpc.Handler{
		"ask":         m.admission.Ask, // the key of anybody
		"changeMine":  m.fleet.ChangeMine,
		"follow":      jobs.Follow,
		"grains":      m.fleet.Refresh,
		"hello":       m.hello,
		"keyAction":   m.admission.KeyAction,
		"letters":     m.outboxes.Deliver,
		"listFiles":   m.listFiles,
		"localReturn": m.dispatch.LocalReturn,
		"login":       m.authz.Logins.Login,
		"makeRoom":    m.outboxes.Reserve,
		"minionFire":  m.outboxes.Fire,
		"peerPublish": jobs.PeerPublish,
		"peerRun":     m.runners.PeerRun,
		"pillar":      m.fleet.SendPillar,
		"publish":     jobs.Publish,
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
