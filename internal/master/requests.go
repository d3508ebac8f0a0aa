package master

import (
	"slices"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/rpc"
)

// register registers the handler of each of these requests, which are among those of
// bus.MasterEndpoints: without a row there, a request is not served.
func (m *Master) register(s *rpc.Server, served bus.Endpoints) {
	jobs := dispatch.NewRequests(m.dispatch, m.authz)
	for name, h := range map[string]rpc.Handler{
		"ask":         m.admission.Ask, // for the holder of any key
		"changeMine":  m.fleet.ChangeMine,
		"deliver":     m.outboxes.Deliver,
		"follow":      jobs.Follow,
		"grains":      m.fleet.Refresh,
		"hello":       m.arrivals.Hello,
		"keyAction":   m.admission.KeyAction,
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
		if slices.ContainsFunc(served, func(e bus.Endpoint) bool { return e.Handler == name }) {
			s.Handle(name, h)
		}
	}
	s.HandleBatches("deliver", m.outboxes.DeliverEach)
}

// registerEvents registers the handlers of programs that fire and listen.
func (m *Master) registerEvents(s *rpc.Server) {
	m.events.SetWhile(m.authz.WhileOnBus)
	m.events.SetWords(m.runners.Words)
	m.events.RegisterClients(s, m.authz.OnBus)
	m.events.Register(s, m.authz.OnBus)
	m.events.RegisterFire(s, m.authz.OnBus)
}
