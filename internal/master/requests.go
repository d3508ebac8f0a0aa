package master

import (
	"maps"
	"slices"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
)

// register registers the handler of each request that a server serves.
func (m *Master) register(s *rpc.Server, served bus.Endpoints) {
	handlers := m.services.Handlers()
	maps.Copy(handlers, map[string]rpc.Handler{
		"ask":       m.admission.Ask, // for the holder of any key
		"keyAction": m.admission.KeyAction,
		"login":     m.authz.Logins.Login,
		"revoke":    m.admission.Revoke,
	})
	for name, h := range handlers {
		if slices.ContainsFunc(served, func(e bus.Endpoint) bool { return e.Handler == name }) {
			s.Handle(name, h)
		}
	}
	m.services.HandleBatches(s)
}
