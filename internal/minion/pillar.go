package minion

import (
	"context"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/value"
)

// showPillar hands the pillar to salt-call.
func (m *Minion) showPillar(ctx context.Context, r *rpc.Request) error {
	return r.Send(ctx, protocol.Pillar{Data: value.Value{V: m.masters.Pillar()}, Errors: m.masters.PillarErrors()})
}
