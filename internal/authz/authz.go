// Package authz decides who may do what on a master, and it alone makes decisions that allow:
// it identifies the principal, holds the rules in force, asks acl about functions, lets users
// of external_auth log in, and has each decision written into the audit log before it takes
// effect.
//
// It does not carry out what it allows. A handler attaches the decision to its request, see
// rpc.Request.Decide; a job or a runner gets the Permission.
package authz

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz/command"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/authz/login"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/target"
)

// Fleet is what decisions need to know about minions.
type Fleet interface {
	acl.Fleet
	// ReadInner reads a target inside a command, without waiting for a turn.
	ReadInner(expr, kind string) (*target.Target, error)
	Targets
}

// Targets resolves targets to minions. If that takes long, it waits for the principal's turn.
type Targets interface {
	ParseTarget(ctx context.Context, principal string, q protocol.Publish) (*target.Target, error)
	TakeTurn(ctx context.Context, principal string, t *target.Target) (end func(), err error)
	// Resolve considers only minions that all targets of within match.
	Resolve(t *target.Target, within []*target.Target) (job.Start, error)
}

// Options are the settings for decisions beside the rules.
type Options struct {
	Users     *auth.Users
	Tables    command.Tables
	FileRecv  bool     // minions may upload files
	KeyRevoke bool     // minions may have their own keys deleted
	APIUser   []string // may log others in with their addresses, besides operators
	Remote    bool     // users of external_auth may log in from other machines
	Log       *slog.Logger
}

// Authorizer makes the decisions of one master. It has rules from the start; the other fields
// are set before any request is served.
type Authorizer struct {
	Options
	Fleet  Fleet
	Audit  *audit.Log
	Events *eventacl.Rules
	Logins *login.Logins // external_auth

	rules    atomic.Pointer[Rules]
	accounts *accounts // of api_user
}

// New returns an Authorizer that decides by the rules.
func New(o Options, r *Rules) *Authorizer {
	a := &Authorizer{Options: o, accounts: newAccounts(o.Users, o.APIUser)}
	a.Logins = login.New(login.Options{
		APIUsers: o.APIUser, Remote: o.Remote, Log: o.Log,
		Local: func(ctx context.Context, i bus.Identity) login.Local {
			who := a.Local(ctx, i)
			return login.Local{Name: who.name, Account: who.account(), Operator: who.operator}
		},
		Record: func(ctx context.Context, e audit.Entry) error { return a.Unwritten(a.Audit.Record(ctx, e)) },
		Note:   func(e audit.Entry) bool { return a.Audit.Note(e) },
	})
	a.SetRules(r)
	return a
}

// SetRules puts rules in force, and logs rules that have no effect.
func (a *Authorizer) SetRules(r *Rules) {
	a.rules.Store(r)
	for _, w := range r.rules.Lint() {
		if w.Dead {
			a.Log.Warn("an access rule has no effect", "where", w.Where, "key", w.Key, "reason", w.Text)
		}
	}
}

// Rules returns those in force.
func (a *Authorizer) Rules() *Rules { return a.rules.Load() }
