package route

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// pillarOver asks the daemon, which has it in memory, for the pillar when a function first
// needs it: most never do.
func pillarOver(conn *rpc.Conn, wait time.Duration, log *slog.Logger) func() protocol.Pillar {
	return sync.OnceValue(func() protocol.Pillar {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		var p protocol.Pillar
		if err := conn.Ask(ctx, protocol.OpPillar, nil, &p); err != nil {
			log.Warn("pillar not loaded", "err", err)
		}
		return p
	})
}

// data implements function.Data with the pillar of a master.
type data struct {
	function.Data
	pillar func() protocol.Pillar
}

// Pillar implements function.Data: an empty map if there is none.
func (d data) Pillar() map[string]any {
	p, ok := d.pillar().Data.V.(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return p
}

// PillarErrors implements function.Data.
func (d data) PillarErrors() []string { return d.pillar().Errors }
