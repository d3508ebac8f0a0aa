// Package runner contains what salt-run can run on the master: runners and wheel functions. They
// work on the master's keys, presence, jobs and journal. Each reaches the master only through the
// narrow Host; none decides who may run it.
//
// A runner module is one file with a function that returns its module for a Host, and one line in
// Table or Wheel.
package runner

import (
	"context"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/pki"
)

// Host is what runners need from the master. An interface may be nil if its part is not available.
type Host struct {
	Access
	Accepted
	Cache
	Cluster
	EventReader
	EventSender
	Facts
	Journal
	NATS
	Presence
	Publisher
	Reactor
	Reloader
	Running
	Settings
	Transition
	Uploads

	Audit     AuditLog
	Keys      KeyStore
	MasterKey pki.PublicKey
	Config    map[string]any // of the master, by Salt's key names, without secrets
	Functions function.Table // functions that minions can execute
	Machine   *function.Host // the master's own machine, for functions of minions

	Files  FileServer
	Custom *extension.Set // runners that were added as programs; nil for none

	Tokens Tokens

	Version string
	Log     *slog.Logger
}

// Reloaded is the result of reading the configuration again.
type Reloaded struct {
	Changed []string // settings that are now in effect
	Restart []string // settings that differ from those of the start and need a restart
}

// MemberReload is the result at another member of the cluster.
type MemberReload struct {
	Name string
	Reloaded
	Err error // why the old configuration stays in force there, or the member was not reached
}

// Execute is a job that a runner runs for its user. The user must be permitted to publish it.
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
		clusterModule(h),
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
		natsModule(h),
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

// Wheel returns the wheel functions for a host, sorted by name: they manage the master itself.
func Wheel(h *Host) function.Table {
	return function.Table{configModule(h), keyModule(h), minionsModule(h)}
}
