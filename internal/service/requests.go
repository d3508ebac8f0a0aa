package service

import (
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/rpc"
)

// Handlers returns which handler answers each request, by the names that the rows of
// bus.MasterEndpoints have for them.
func (s *Services) Handlers() map[string]rpc.Handler {
	jobs := dispatch.NewRequests(s.Jobs, s.Authz)
	return map[string]rpc.Handler{
		"changeMine":  s.Fleet.ChangeMine,
		"deliver":     s.Outboxes.Deliver,
		"early":       s.Outboxes.Early,
		"follow":      jobs.Follow,
		"grains":      s.Fleet.Refresh,
		"hello":       s.Arrivals.Hello,
		"listFiles":   s.files.List,
		"localReturn": s.Jobs.LocalReturn,
		"minionFire":  s.Outboxes.Fire,
		"peerPublish": jobs.PeerPublish,
		"peerRun":     s.runners.PeerRun,
		"pillar":      s.Fleet.SendPillar,
		"publish":     jobs.Publish,
		"push":        s.files.Push,
		"readMine":    s.Fleet.ReadMine,
		"reserve":     s.Outboxes.Reserve,
		"returned":    s.Jobs.Returned,
		"run":         s.runners.Run,
		"sendFile":    s.files.Send,
	}
}

// HandleBatches registers the handler of requests that are answered many at a time.
func (s *Services) HandleBatches(on *rpc.Server) { on.HandleBatches("deliver", s.Outboxes.DeliverEach) }

// RegisterEvents registers the handlers for programs that fire and listen.
func (s *Services) RegisterEvents(on *rpc.Server) {
	s.Events.SetWhile(s.Authz.WhileOnBus)
	s.Events.SetWords(s.runners.Words)
	s.Events.RegisterClients(on, s.Authz.OnBus)
	s.Events.Register(on, s.Authz.OnBus)
	s.Events.RegisterFire(on, s.Authz.OnBus)
}
