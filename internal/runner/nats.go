package runner

import (
	"context"

	"github.com/brinebus/brine/internal/function"
)

// natsModule is about NATS servers that others run.
func natsModule(h *Host) *function.Module {
	return &function.Module{Name: "nats", Doc: "NATS servers that others run, see nats_servers.", Functions: []function.Function{
		{Name: "config", Class: function.Shared, Doc: "Return what the configuration of each NATS server needs so that this master and its minions can use it: accounts, the users of the master, and who answers whether somebody may connect. There are no secrets in it.",
			Example: "salt-run nats.config --out=newline_values_only", Run: func(context.Context, *function.Call) (any, error) { return h.ServerConfig() }},
	}}
}
