package dispatch

import (
	"strings"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
)

// plan is what must be known of a job to carry it on after a restart.
type plan struct {
	Envelope job.Envelope             `json:"envelope"`
	Start    job.Start                `json:"start"`
	Timeout  job.Seconds              `json:"timeout"`
	Batch    job.BatchOptions         `json:"batch"`
	Began    time.Time                `json:"began,omitzero"`
	Until    time.Time                `json:"until,omitzero"` // how long it waits for those that are away; zero is not at all
	Keys     map[salt.MinionID]string `json:"keys,omitempty"` // the job is for the holder of this key; none: it is not sent again
	Internal bool                     `json:"internal,omitempty"`
	Backend  string                   `json:"backend,omitempty"` // that authenticated the user
	Metadata any                      `json:"-"`
}

// lasts says whether the job goes on after a restart of the master, however late.
func (p *plan) lasts(batch *job.Batch) bool { return batch != nil || !p.Until.IsZero() }

// waits says whether the job waits for a minion that is away.
func (p *plan) waits(id salt.MinionID, now time.Time) bool {
	return p.Keys[id] != "" && now.Before(p.Until)
}

// given is the target as it was given: a list is one.
func (p *plan) given() any {
	if p.Envelope.TargetType == string(target.List) {
		return value.Texts(strings.Split(p.Envelope.Target, ","))
	}
	return p.Envelope.Target
}
