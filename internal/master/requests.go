package master

import (
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
		"hello":       m.arrivals.Hello,
		"keyAction":   m.admission.KeyAction,
		"letters":     m.outboxes.Deliver,
		"listFiles":   m.files.List,
		"localReturn": m.dispatch.LocalReturn,
		"login":       m.authz.Logins.Login,
		"reserve":     m.outboxes.Reserve,
		"minionFire":  m.outboxes.Fire,
		"peerPublish": jobs.PeerPublish,
		"peerRun":     m.runners.PeerRun,
		"pillar":      m.fleet.SendPillar,
		"publish":     jobs.Publish,
		"push":        m.files.Push,
		"readMine":    m.fleet.ReadMine,
		"returned":    m.dispatch.Returned,
		"revoke":      m.admission.Revoke,
		"run":         m.runners.Run,
		"sendFile":    m.files.Send,
	} {
		s.Handle(name, h)
	}
	s.HandleBatches("letters", m.outboxes.DeliverEach)
	m.events.SetWhile(m.authz.WhileOnBus)
	m.events.SetWords(m.runners.Words)
	m.events.RegisterClients(s, m.authz.OnBus)
	m.events.Register(s, m.authz.OnBus)
	m.events.RegisterFire(s, m.authz.OnBus)
}
