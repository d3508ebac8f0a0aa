// Package admission decides who may connect to a master: it identifies a connection by its key,
// tells the holder the state of that key, and cuts connections when keys change, expire or are
// revoked. What is written about it, into the log, the audit log and events, is limited for
// each host and in all.
//
// Package keyring decides about keys, bus and authz about what their holders may do.
package admission

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

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

// Connections are the admitted connections.
type Connections interface {
	ConnectionsOf(match func(bus.Identity) bool, f func(i bus.Identity, cut func()))
	// ConnectionsOfMinion calls f for those of the daemon of a minion, without a look at the others.
	ConnectionsOfMinion(id string, f func(i bus.Identity, cut func()))
	// ConnectionsOfID calls f for those with the key of a minion, of its daemon and of salt-call, without a look at the
	// others.
	ConnectionsOfID(id string, f func(i bus.Identity, cut func()))
	// CutInbox ends the connection with this inbox prefix, without a look at the others.
	CutInbox(inbox string)
	// CountMinions returns how many minions have such a connection.
	CountMinions() int
	Owner(inbox string) (bus.Identity, bool)
}

// Audit is the audit log.
type Audit interface {
	Note(e audit.Entry) (written bool)
}

// Decided records decisions that have taken effect already, each with an event that tells of it. Tell does not wait.
type Decided interface {
	Tell(e audit.Entry, tag string, data any)
}

// Events are those of the master.
type Events interface {
	Announce(tag string, data any)
}

// Minions are what the master knows about minions that have had a key. Forget does not wait for the
// store.
type Minions interface {
	Forget(id salt.MinionID)
}

// Jobs are those of the master.
type Jobs interface {
	Revoke() // called when a key is no longer accepted
}

// Logins are those of users of external_auth.
type Logins interface {
	// Remote returns the user whose login has announced a connection with this inbox, "" for
	// none.
	Remote(inbox string) string
	// Holds reports whether the login on a connection is still valid.
	Holds(ctx context.Context, i bus.Identity) bool
}

// Options are the settings of an Admission.
type Options struct {
	Keys    *keyring.Keyring
	Users   Users
	Version string // of this program
	// MaxMinions is how many minions may be connected; 0 is any number.
	MaxMinions int
	Log        *slog.Logger
}

// Admission admits connections. Fields other than Options are set before the first one.
type Admission struct {
	Options
	Connections Connections
	Audit       Audit
	Events      Events
	Decided     Decided
	// Unwritable returns why nothing can be stored at the moment, nil if it can.
	Unwritable func() error
	// DecidedElsewhere reports whether another master admits the minions now, which does not hear of decisions made here.
	DecidedElsewhere func() bool
	Minions          Minions
	Jobs             Jobs
	Local            func(context.Context, bus.Identity) audit.Who // a user of this machine, for the audit log
	Logins           Logins
	Changed          func([]keyring.Change) // called with changes of the key store; may be nil
	// Current reports whether this master knows what other masters have decided about keys; nil
	// means that there are none. See WatchCurrent.
	Current func() bool
	known   atomic.Bool // Current was true once
	// Prove returns the master's certificate and its signature of a text, for minions whose TLS
	// does not end at the master; nil, which has no proof for anybody, where there are none.
	Prove func(text []byte) (certificate, signature []byte, err error)

	ctx      context.Context
	wg       sync.WaitGroup
	waiting  keyring.Waiters
	admitted admitted
	byRules  byRules          // used by Watch
	byOthers byRules          // of rules of other members, which leave those of this one their events; used by Watch
	throttle logging.Throttle // of log lines about keys that are not accepted
	often    logging.Throttle // of log lines that every peer with our protocol can cause
}

// New returns an Admission. The end of ctx ends what is under way.
func New(ctx context.Context, o Options) *Admission { return &Admission{Options: o, ctx: ctx} }

// Wait returns when nothing is under way any more, after the end of the context.
func (a *Admission) Wait() { a.wg.Wait() }
