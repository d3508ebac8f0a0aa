// Package runnerjob runs runners and wheel functions for principals: from the decision whether
// they may, over the events about it, to the answer. It makes the host through which a runner
// reaches its master: one with the rights of the principal, or one with only what is their own.
//
// The functions themselves are in package runner.
package runnerjob

import (
	"context"
	"runtime"
	"sync"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/semaphore"
)

// Jobs runs jobs on minions.
type Jobs interface {
	Execute(ctx context.Context, q protocol.Publish, who authz.Principal, may authz.Permission) ([]job.Update, error)
	Cancel(ctx context.Context, jid salt.JID, by string) ([]salt.MinionID, error)
	Await(ctx context.Context, user string, jid salt.JID) error
}

// Active provides the unfinished jobs, all or the one with an id.
type Active interface {
	Runs(ctx context.Context, jid salt.JID, shown func(*dispatch.Job) bool) []job.Summary
}

// Journal provides what was stored.
type Journal interface {
	Read(ctx context.Context, q journal.Query, f func(event.Event) error) error
}

// Events are those of the master.
type Events interface {
	Store(ctx context.Context, tag string, data any, id string) (uint64, error)
	Fire(ctx context.Context, d decision.Decision, f protocol.Fire, from string) (protocol.Fired, error)
}

// Options are the settings of a Server.
type Options struct {
	Host                runner.Host       // what is the same for all users of runners
	Authz               *authz.Authorizer // not an interface: nothing else may decide
	AuditLog            *audit.Log
	Jobs                Jobs
	Active              Active
	Journal             Journal
	Events              Events
	Keys                func(who audit.Who) runner.KeyStore // for changes by who
	Config              func() map[string]any               // in force, without secrets
	CacheDir, ConfigDir string                              // of the master
	NextJID             func() salt.JID                     // of the jobs of the master
	MaxEventSize        int64                               // bytes of the data of one event
}

// Server runs runners.
type Server struct {
	Options
	ctx         context.Context
	wg          sync.WaitGroup
	unwatched   unwatched
	longReads   *semaphore.Keyed
	longAnswers *semaphore.Keyed
	lookups     *semaphore.Keyed // limits searches of users among their own jobs
}

// New returns a Server. The end of ctx ends runners that nobody waits for.
func New(ctx context.Context, o Options) *Server {
	return &Server{
		Options: o, ctx: ctx, longReads: semaphore.New(1), longAnswers: semaphore.New(maxLongAnswers),
		lookups: semaphore.New(max(1, runtime.GOMAXPROCS(0)/2)),
	}
}

// Wait returns when no runner that nobody waits for is running any more, after the end of the
// context.
func (s *Server) Wait() { s.wg.Wait() }
