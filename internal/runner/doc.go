// Package runner is what salt-run can run on the master, runners and wheel
// functions: functions over the master's keys, presence, jobs and journal. Each reaches the master through the
// narrow Host only; none decides who may run it.
//
// A runner module is one file with a function that returns its module for a
// Host, and one line in Table or Wheel.
package runner

import (
	"context"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Host is what runners need of the master.
type Host struct {
	Accepted func() []salt.MinionID                                      // ids with an accepted key, sorted
	Resolve  func(expression, kind string) ([]salt.MinionID, error)      // the accepted minions that a target means
	Presence func(id salt.MinionID) (connected bool, lastSeen time.Time) // a zero time is never
	Grains   func(id salt.MinionID) map[string]any                       // what it last said, nil for nothing
	Mine     func(id salt.MinionID) (map[string]any, error)              // what it keeps there, nil for nothing
	// DropGrains, DropPillar and DropMine forget what is known of a minion, of the mine one entry or, for "", all.
	DropGrains func(ctx context.Context, id salt.MinionID) error
	DropPillar func(id salt.MinionID)
	DropMine   func(ctx context.Context, id salt.MinionID, entry string) error
	// Pillar compiles the pillar of a minion, with the grains that it is known
	// to have, and those of supposed over them. env is one environment, "" all.
	Pillar func(id salt.MinionID, env string, supposed map[string]any) (map[string]any, error)

	Execute func(ctx context.Context, e Execute) ([]job.Update, error) // runs a job and waits for it
	// Ping runs test.ping and waits for it: who may run the runner may have that done.
	Ping      func(ctx context.Context, tgt, kind string, timeout time.Duration) ([]job.Update, error)
	Events    func(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error // reads the journal
	Runs      func() []job.Summary                                                                        // jobs of which more is expected, the oldest first
	Cancel    func(ctx context.Context, jid salt.JID) ([]salt.MinionID, error)                            // withdraws a job from whom it was not sent to, and returns those
	Await     func(ctx context.Context, jid salt.JID) error                                               // returns when nothing more is expected of a job for now
	SendEvent func(ctx context.Context, tag string, data any) error
	Explain   func(ctx context.Context, e Explain) (Explained, error) // whether somebody may do something
	Rights    func(ctx context.Context) (Rights, error)               // what who asks may do
	Lint      func(ctx context.Context) []acl.Warning                 // what is strange about the access rules

	// Reload reads the configuration anew. What is wrong with it is in the error,
	// and then nothing has changed.
	Reload func() (Reloaded, error)
	// Unreloaded is why the configuration that was read last is not in force, "" when
	// it is.
	Unreloaded func() string
	StoreErr   func() error // why the journal cannot be written, nil when it can

	Audit     AuditLog
	Verify    func(context.Context) (JournalReport, error) // the files of the journal
	Keys      KeyStore
	MasterKey pki.PublicKey
	Config    map[string]any // of the master, by Salt's key names, without secrets
	Functions function.Table // what minions can execute
	Machine   *function.Host // the master's own machine, as functions of minions take it

	Files  FileServer
	Custom *extension.Set // runners that people have added; nil for none

	Tokens Tokens

	Reactions     func() []Reaction                                                    // handlers of events, by name
	RetryReaction func(ctx context.Context, name string, seq uint64) ([]uint64, error) // hands dead letters to one again; 0 is all

	Version string
	Log     *slog.Logger
}

// Reloaded is what came of reading the configuration anew.
type Reloaded struct {
	Changed []string // settings that have taken effect
	Restart []string // settings that differ from those of the start and need a restart
}

// Execute is a job that a runner wants to be run for whoever asked for the runner. It
// must be permitted to them, as if they published it themselves.
type Execute struct {
	Target, TargetType string
	Command            job.Command
	Timeout            time.Duration
}

// Table returns the runners for a host, sorted by name.
func Table(h *Host) function.Table {
	var t function.Table
	t = function.Table{
		aclModule(h),
		auditModule(h),
		authModule(h),
		cacheModule(h),
		settingsModule(h),
		docModule(func(ctx context.Context) function.Table { return t.With(ctx, h.Custom) }, Wheel(h), h.Functions),
		errorModule(),
		eventModule(h),
		fileserverModule(h),
		httpModule(h),
		jobsModule(h),
		journalModule(h),
		manageModule(h),
		mineModule(h),
		networkModule(h),
		pillarModule(h),
		reactorModule(h),
		saltModule(h),
		saltutilModule(h),
		stateModule(),
		statusModule(h),
		surveyModule(h),
		testModule(h),
	}
	return t
}

// Wheel returns the wheel functions for a host, sorted by name: those that manage
// the master itself.
func Wheel(h *Host) function.Table {
	return function.Table{configModule(h), keyModule(h), minionsModule(h)}
}
