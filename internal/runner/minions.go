package runner

import (
	"context"

	"github.com/brinebus/brine/internal/function"
)

// minionsModule has the wheel functions about minions.
func minionsModule(h *Host) *function.Module {
	return &function.Module{Name: "minions", Doc: "The minions of this master.", Functions: []function.Function{
		{Name: "connected", Class: function.Shared, Doc: "Return the ids of the minions that are connected now.", Example: "salt-run --wheel minions.connected",
			Run: func(context.Context, *function.Call) (any, error) {
				there := []any{}
				for _, id := range h.IDs() {
					if ok, _ := h.Connected(id); ok {
						there = append(there, string(id))
					}
				}
				return there, nil
			}},
	}}
}
