package dispatch

import (
	"context"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
)

// plan is what is needed to continue a job after a restart.
type plan struct {
	Envelope job.Envelope             `json:"envelope"`
	Start    job.Start                `json:"start"`
	Timeout  job.Seconds              `json:"timeout"`
	Batch    job.BatchOptions         `json:"batch"`
	Began    time.Time                `json:"began,omitzero"`
	Until    time.Time                `json:"until,omitzero"`   // how long it waits for minions that are away; zero is not at all
	Keys     map[salt.MinionID]string `json:"keys,omitempty"`   // the job is only for the holder of this key; without keys it is not sent again
	Tokens   []byte                   `json:"tokens,omitempty"` // of Keys, in the order of the minions; only where it is stored
	Internal bool                     `json:"internal,omitempty"`
	Backend  string                   `json:"backend,omitempty"` // that authenticated the user
	Holder   lease.Holder             `json:"holder,omitzero"`   // the member that carries the job on; nobody for a single master
	Started  bool                     `json:"started,omitempty"` // the start of the job was stored, see noteStarted
	Metadata any                      `json:"-"`

	spooled bool // the job was started while nothing could be stored; then this is never stored

	table    string          // that has the plan
	term     context.Context // ends when this member has lost the lease of Holder; nil for a single master
	revision uint64          // of the plan in the table; 0 for a single master
	absent   bool            // the job was taken over, and the journals had no start of it
}

// lasts reports whether the job continues after a restart of the master, however late.
func (p *plan) lasts(batch *job.Batch) bool { return batch != nil || !p.Until.IsZero() }

// waits reports whether the job waits for a minion that is away.
func (p *plan) waits(id salt.MinionID, now time.Time) bool {
	return p.Keys[id] != "" && now.Before(p.Until)
}

// given returns the target as given: a list is a list.
func (p *plan) given() any {
	if p.Envelope.TargetType == string(target.List) {
		return value.Texts(strings.Split(p.Envelope.Target, ","))
	}
	return p.Envelope.Target
}
