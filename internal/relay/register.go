package relay

import (
	"context"

	"brine/internal/bus"
)

// Register serves everything that local users may ask of the bus. who says what
// the user behind a connection is and may hear.
func (r *Relay) Register(s *bus.Server, who func(context.Context, bus.Identity) Asker) {
	for name, h := range map[string]func(context.Context, *bus.Request, Asker) error{
		"userListen":  r.Listen,
		"userPlace":   r.Place,
		"userConfirm": r.Confirm,
		"userDead":    r.Dead,
		"userStat":    r.Stat,
		"userPurge":   r.Purge,
	} {
		s.Handle(name, handler(h, who))
	}
}

// RegisterFire serves the events that local users fire, where they are for this bus alone.
func (r *Relay) RegisterFire(s *bus.Server, who func(context.Context, bus.Identity) Asker) {
	s.Handle("userFire", handler(r.FireFor, who))
}

// RegisterClients serves what clients may ask.
func (r *Relay) RegisterClients(s *bus.Server) {
	who := func(_ context.Context, i bus.Identity) Asker {
		client := r.Client(i)
		client.Source = i.Source
		return client
	}
	for name, h := range map[string]func(context.Context, *bus.Request, Asker) error{
		"clientFire":    r.FireFor,
		"clientListen":  r.Listen,
		"clientPlace":   r.Place,
		"clientConfirm": r.Confirm,
	} {
		s.Handle(name, handler(h, who))
	}
}

func handler(h func(context.Context, *bus.Request, Asker) error, who func(context.Context, bus.Identity) Asker) bus.Handler {
	return func(ctx context.Context, req *bus.Request) error { return h(ctx, req, who(ctx, req.From)) }
}
