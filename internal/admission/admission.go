// Package admission is the door of a master: who a connection is by its key, what its holder
// is told of that key, and who is cut when keys change, expire or are revoked. What is said
// of it, in the log, the audit log and the events, is bounded for each host and for all.
//
// What a key may be is decided by keyring, what its holder may do by bus and authz.
package admission

import (
	"context"
	"log/slog"
	"sync"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// Users are the accounts of this machine.
type Users interface {
	Lookup(ctx context.Context, uid int) auth.User
}

// Connections are those that were let in.
type Connections interface {
	ConnectionsOf(match func(bus.Identity) bool, f func(i bus.Identity, cut func()))
	Owner(inbox string) (bus.Identity, bool)
}

// Audit is the audit log.
type Audit interface {
	Note(e audit.Entry) (written bool)
}

// Events are those of the master.
type Events interface {
	Announce(tag string, data any)
}

// Minions are what the master knows of those that have had a key.
type Minions interface {
	Forget(ctx context.Context, id salt.MinionID)
}

// Jobs are those of the master.
type Jobs interface {
	Revoke() // some key is accepted no more
}

// Logins are those of users of external_auth.
type Logins interface {
	// Remote names the user for whom a login has announced a connection with this inbox,
	// "" for nobody.
	Remote(inbox string) string
	// Holds says whether the login on a connection does.
	Holds(ctx context.Context, i bus.Identity) bool
}

// Options are what an admission is made with.
type Options struct {
	Keys    *keyring.Keyring
	Users   Users
	Version string // of this program
	Log     *slog.Logger
}

// Admission lets connections in. What is no option is set before the first one.
type Admission struct {
	Options
	Connections Connections
	Audit       Audit
	Events      Events
	Minions     Minions
	Jobs        Jobs
	Local       func(context.Context, bus.Identity) audit.Who // somebody of this machine, for the record
	Logins      Logins

	ctx      context.Context
	wg       sync.WaitGroup
	waiting  keyring.Waiters
	throttle logging.Throttle // of words on keys that are not accepted
	often    logging.Throttle // of words that anybody causes who has a version of ours
}

// New makes an admission. The end of ctx ends what is under way.
func New(ctx context.Context, o Options) *Admission { return &Admission{Options: o, ctx: ctx} }

// Wait returns when nothing is under way any more: after the end of the context.
func (a *Admission) Wait() { a.wg.Wait() }
