// Package localapi answers the requests of local programs to a minion's daemon: of salt-call
// and salt-event, and of users whom event_acl lets use the minion's bus. It decides who they
// are and whether they may; the parts of the daemon do the work.
package localapi

import (
	"context"
	"log/slog"

	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/forwarder"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/scheduler"
	"github.com/brinebus/brine/internal/upstream"
)

// Facts provides the grains of the minion.
type Facts interface {
	// Facts waits for the first collection. The grains must not be changed.
	Facts(ctx context.Context) (map[string]any, error)
	// RefreshGrains collects them again and sends them to the masters.
	RefreshGrains(ctx context.Context) error
}

// Options are the parts of the daemon that do the work. All are required.
type Options struct {
	ID        salt.MinionID
	Version   string
	Events    *eventbus.Bus
	Facts     Facts
	Forwarder *forwarder.Forwarder
	Masters   *upstream.Uplinks
	Boxes     *outbox.Boxes // one for each uplink
	Scheduler *scheduler.Scheduler
	Log       *slog.Logger
}

// API answers requests of local programs. It is safe for concurrent use.
type API struct {
	Options
	users    auth.Users
	throttle logging.Throttle // of refusals
}

// New returns the API, for Register.
func New(o Options) *API { return &API{Options: o} }

// Register registers a handler for each request, see bus.MinionEndpoints, with its permission.
// The bus is open to users in event_acl, everything else only to root and the daemon's own
// user.
func (a *API) Register(s *rpc.Server) {
	s.Authorize = a.authorize
	a.Events.Register(s, a.principal)
	s.Handle("localFire", a.localFire)
	s.Handle("passFiles", a.passFiles)
	s.Handle("passOn", a.passOn)
	s.Handle("passReturn", a.passReturn)
	s.Handle("passToMaster", a.passToMaster)
	s.Handle("refresh", a.refresh)
	s.Handle("scheduleRequest", a.scheduleRequest)
	s.Handle("showPillar", a.showPillar)
	s.Handle("status", a.status)
}

// principal returns the sender, with the tags that event_acl lets them hear and fire.
func (a *API) principal(ctx context.Context, i bus.Identity) eventacl.Principal {
	u := a.users.Lookup(ctx, i.UID())
	return a.Events.Rules().User(u.UID, string(u.Name), u.Operator)
}

// maxLines is how often in a minute a refusal of a user is logged.
const maxLines = 20

// authorize allows root and the daemon's own user what is only for them.
func (a *API) authorize(ctx context.Context, r *rpc.Request, c bus.Check) decision.Decision {
	who := a.principal(ctx, r.From)
	d := eventacl.ForOperator(who, c, rpc.Errorf(rpc.Denied, "user %s may not do this: it is for root and the minion's own user", who.Name()))
	if d.Err() != nil {
		a.throttle.Log(a.Log, slog.LevelWarn, who.Name(), maxLines, "request refused", "op", r.Op, "user", who.Name())
	}
	return d
}

// MayConnect reports whether a local user may connect at all.
func (a *API) MayConnect(ctx context.Context, uid int) bool {
	u := a.users.Lookup(ctx, uid)
	return u.Operator || a.Events.Rules().Known(string(u.Name))
}
