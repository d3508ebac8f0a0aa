package eventbus

import (
	"context"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/profile"
	"github.com/brinebus/brine/internal/rpc"
)

// Register serves the requests that local users may send to the bus. who says what the user
// behind a connection is and may hear. Profiles of the process are served here too: both
// daemons give them to the same people.
func (r *Bus) Register(s *rpc.Server, who func(context.Context, bus.Identity) eventacl.Principal) {
	for name, h := range map[string]func(context.Context, *rpc.Request, eventacl.Principal) error{
		"complete":    r.Complete,
		"userEnd":     r.End,
		"userConfirm": r.Confirm,
		"userDead":    r.Dead,
		"userStat":    r.Stat,
		"userPurge":   r.Purge,
	} {
		s.Handle(name, handler(r, h, who))
	}
	s.Handle("userListen", r.listening(who))
	s.Handle("profile", profile.Handle)
}

// SetWhile sets the function that runs answers to users: it ends the context of an answer that
// may not go on. It is called before any request is served.
func (r *Bus) SetWhile(while func(ctx context.Context, i bus.Identity, f func(context.Context) error) error) {
	r.while = while
}

// RegisterFire serves the events that local users fire on this bus alone.
func (r *Bus) RegisterFire(s *rpc.Server, who func(context.Context, bus.Identity) eventacl.Principal) {
	s.Handle("userFire", handler(r, r.FireFor, who))
}

// RegisterClients serves the requests of clients. who says what one is and may hear: by its
// key, or by the login on its connection.
func (r *Bus) RegisterClients(s *rpc.Server, who func(context.Context, bus.Identity) eventacl.Principal) {
	for name, h := range map[string]func(context.Context, *rpc.Request, eventacl.Principal) error{
		"clientFire":    r.FireFor,
		"clientEnd":     r.End,
		"clientConfirm": r.Confirm,
		"clientDead":    r.Dead,
	} {
		s.Handle(name, handler(r, h, who))
	}
	s.Handle("clientListen", r.listening(who))
}

// listening serves listeners. When one has started, the rules may have changed since it was
// checked, and SetGrants did not know of it yet.
func (r *Bus) listening(who func(context.Context, bus.Identity) eventacl.Principal) rpc.Handler {
	type seen struct {
		who   eventacl.Principal
		rules uint64
	}
	look := func(ctx context.Context, i bus.Identity) seen {
		rules := r.changes.Load() // before anything of them is read
		return seen{who(ctx, i), rules}
	}
	return handler(r, func(ctx context.Context, req *rpc.Request, s seen) error { return r.Listen(ctx, req, s.who, s.rules) }, look)
}

// handler answers requests with h, for the principal that who returns.
func handler[P any](r *Bus, h func(context.Context, *rpc.Request, P) error, who func(context.Context, bus.Identity) P) rpc.Handler {
	return func(ctx context.Context, req *rpc.Request) error {
		if r.while == nil {
			return h(ctx, req, who(ctx, req.From))
		}
		return r.while(ctx, req.From, func(ctx context.Context) error { return h(ctx, req, who(ctx, req.From)) })
	}
}
