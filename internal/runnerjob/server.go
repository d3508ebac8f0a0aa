// Package runnerjob runs runners and wheel functions for whoever asks: from the decision
// whether they may, over the events that tell of it, to the answer. It makes the host that
// a runner reaches its master by: one in the name of who asked, with what they may, or one
// that has nothing but what is their own.
//
// The functions themselves are those of package runner.
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

// Jobs are those that minions run.
type Jobs interface {
	Execute(ctx context.Context, q protocol.Publish, who authz.Principal, may authz.Permission) ([]job.Update, error)
	Cancel(jid salt.JID, by string) ([]salt.MinionID, error)
	Await(ctx context.Context, jid salt.JID) error
}

// Active are the jobs of which more is expected.
type Active interface {
	Runs(shown func(*dispatch.Job) bool) []job.Summary
	Running(jid salt.JID) *dispatch.Job
}

// Journal is what was stored.
type Journal interface {
	Read(ctx context.Context, q journal.Query, f func(event.Event) error) error
}

// Events are those of the master.
type Events interface {
	Store(ctx context.Context, tag string, data any, id string) (uint64, error)
	Fire(ctx context.Context, d decision.Decision, f protocol.Fire, from string) (protocol.Fired, error)
}

// Options are what a server is made with.
type Options struct {
	Host                runner.Host       // what is the same for everybody who may run a runner
	Authz               *authz.Authorizer // no interface: nothing else may decide
	AuditLog            *audit.Log
	Jobs                Jobs
	Active              Active
	Journal             Journal
	Events              Events
	Keys                func(who audit.Who) runner.KeyStore           // in the hands of who
	Config              func() map[string]any                         // in force, without secrets
	CacheDir, ConfigDir string                                        // of the master
	Grains              func(context.Context) (map[string]any, error) // of the master's own machine
	NextJID             func() salt.JID                               // of the jobs of the master
	MaxEventSize        int64                                         // bytes of the data of one event
}

// Server runs runners.
type Server struct {
	Options
	ctx         context.Context
	wg          sync.WaitGroup
	unwatched   unwatched
	longReads   *semaphore.Keyed
	longAnswers *semaphore.Keyed
	lookups     *semaphore.Keyed // of people among their own jobs
}

// New makes a server. When ctx ends, so do the runners that nobody waits for.
func New(ctx context.Context, o Options) *Server {
	return &Server{
		Options: o, ctx: ctx, longReads: semaphore.New(1), longAnswers: semaphore.New(maxLongAnswers),
		lookups: semaphore.New(max(1, runtime.GOMAXPROCS(0)/2)),
	}
}

// Wait returns when no runner is at work that nobody waits for: after the end of the
// context.
func (s *Server) Wait() { s.wg.Wait() }
