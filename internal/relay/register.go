package relay

import (
	"context"

	"brine/internal/bus"
	"brine/internal/protocol"
)

// Register serves everything that local users may ask of the bus. who says what
// the user behind a connection is and may hear.
func (r *Relay) Register(s *bus.Server, who func(context.Context, bus.Identity) Asker) {
	for op, h := range map[string]func(context.Context, *bus.Request, Asker) error{
		protocol.OpFire:    r.FireFor,
		protocol.OpListen:  r.Listen,
		protocol.OpPlace:   r.Place,
		protocol.OpConfirm: r.Confirm,
		protocol.OpDead:    r.Dead,
		protocol.OpStat:    r.Stat,
		protocol.OpPurge:   r.Purge,
	} {
		s.Handle(bus.RoleUser, op, func(ctx context.Context, req *bus.Request) error {
			return h(ctx, req, who(ctx, req.From))
		})
	}
}

// RegisterClients serves what clients may ask.
func (r *Relay) RegisterClients(s *bus.Server) {
	for op, h := range map[string]func(context.Context, *bus.Request, Asker) error{
		protocol.OpFire:    r.FireFor,
		protocol.OpListen:  r.Listen,
		protocol.OpPlace:   r.Place,
		protocol.OpConfirm: r.Confirm,
	} {
		s.Handle(bus.RoleClient, op, func(ctx context.Context, req *bus.Request) error {
			who := r.Client(req.From)
			who.Source = req.From.Source
			return h(ctx, req, who)
		})
	}
}
