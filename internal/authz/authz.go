// Package authz decides who may do what on a master, and is the only maker of a decision
// that allows: it knows who asks (Principal), holds the rules in force, asks acl about
// functions, lets users of external_auth log in, and has each decision written into the
// audit log before it takes effect.
//
// What it decides about it does not do. A handler takes the decision to its request, see
// rpc.Request.Decide; a job and a runner take the Permission.
package authz

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/target"
)

// Fleet is what decisions need to know of minions.
type Fleet interface {
	acl.Fleet
	// ReadInner reads a target inside a command, for which nobody waits their turn.
	ReadInner(expr, kind string) (*target.Target, error)
	Targets
}

// Targets finds the minions that a target means, in the turn of who asks where that takes
// long.
type Targets interface {
	ParseTarget(ctx context.Context, principal string, q protocol.Publish) (*target.Target, error)
	TakeTurn(ctx context.Context, principal string, t *target.Target) (end func(), err error)
	// Resolve looks at those minions only that all of within mean.
	Resolve(t *target.Target, within []*target.Target) (job.Start, error)
}

// Options are what decisions are made of, beside the rules.
type Options struct {
	Users     *auth.Users
	Tables    Tables
	FileRecv  bool     // minions may hand in files
	KeyRevoke bool     // minions may have their keys forgotten
	APIUser   []string // may log others in by their addresses, beside operators
	Remote    bool     // users of external_auth may log in from other machines
	Log       *slog.Logger
}

// Authorizer makes the decisions of one master. Rules are there from the start; the rest is
// set before anybody is served.
type Authorizer struct {
	Options
	Fleet  Fleet
	Audit  *audit.Log
	Events *eventacl.Rules
	Logins *Logins // external_auth

	rules atomic.Pointer[Rules]
}

// New returns an Authorizer that decides by the rules.
func New(o Options, r *Rules) *Authorizer {
	a := &Authorizer{Options: o}
	a.Logins = &Logins{
		apiUsers: o.APIUser, remote: o.Remote, log: o.Log, local: a.Local,
		record: func(ctx context.Context, e audit.Entry) error { return a.Unwritten(a.Audit.Record(ctx, e)) },
		note:   func(e audit.Entry) bool { return a.Audit.Note(e) },
	}
	a.SetRules(r)
	return a
}

// SetRules puts rules in force, and tells what of them can have no effect.
func (a *Authorizer) SetRules(r *Rules) {
	a.rules.Store(r)
	for _, w := range r.rules.Lint() {
		if w.Dead {
			a.Log.Warn("an access rule has no effect", "where", w.Where, "key", w.Key, "reason", w.Text)
		}
	}
}

// Rules are those in force.
func (a *Authorizer) Rules() *Rules { return a.rules.Load() }
