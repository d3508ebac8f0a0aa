// Package runner is what salt-run can run on the master: functions over the
// master's keys, presence, jobs and journal. Each reaches the master through the
// narrow Host only; none decides who may run it.
//
// A runner module is one file with a function that returns its module for a
// Host, and one line in Table.
package runner

import (
	"context"
	"time"

	"brine/internal/event"
	"brine/internal/job"
	"brine/internal/module"
	"brine/internal/salt"
)

// Host is what runners need of the master.
type Host struct {
	Accepted  func() []salt.MinionID                                                                      // ids with an accepted key, sorted
	Presence  func(id salt.MinionID) (connected bool, lastSeen time.Time)                                 // a zero time is never
	Grains    func(id salt.MinionID) map[string]any                                                       // what it last said, nil for nothing
	Execute   func(ctx context.Context, e Execute) ([]job.Update, error)                                  // runs a job and waits for it
	Events    func(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error // reads the journal
	SendEvent func(ctx context.Context, tag string, data any) error
	Explain   func(ctx context.Context, e Explain) (Explained, error) // whether somebody may do something
	Lint      func(ctx context.Context) []Finding                     // what is strange about the access rules
	Version   string
}

// Execute is a job that a runner wants to be run.
type Execute struct {
	Target, TargetType string
	Command            job.Command
	Timeout            time.Duration
}

// Table returns the runners for a host, sorted by name.
func Table(h *Host) module.Table {
	var t module.Table
	t = module.Table{
		aclModule(h),
		docModule(func() module.Table { return t }),
		eventModule(h),
		jobsModule(h),
		manageModule(h),
		testModule(h),
	}
	return t
}
