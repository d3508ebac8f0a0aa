package protocol

import (
	"time"

	"github.com/brinebus/brine/internal/schedule"
	"github.com/brinebus/brine/internal/value"
)

// OpSchedule is for the schedule of a minion's daemon: Schedule → Schedule, with the new state.
const OpSchedule = "schedule"

// Schedule is a request about the schedule, and its answer.
type Schedule struct {
	Do   ScheduleAction       `json:"do,omitempty"` // "" shows it only
	Jobs value.Value          `json:"jobs"`         // as the setting schedule has it
	Next map[string]time.Time `json:"next,omitempty"`
	Save bool                 `json:"save,omitempty"` // keep the change over a restart
	Name string               `json:"name,omitempty"` // of the job to run

	Origins map[string]schedule.Origin `json:"origins,omitempty"`

	// Revision is that of the schedule; with ScheduleSet, the one that the jobs were made of: if that
	// is not the present one, nothing is changed. 0 is any.
	Revision uint64 `json:"revision,omitempty"`
}

// NewSchedule is the answer for s.
func NewSchedule(s schedule.Status) Schedule {
	return Schedule{Jobs: value.Value{V: s.Jobs}, Next: s.Next, Origins: s.Origins, Revision: s.Revision}
}

// Status returns the schedule in the answer.
func (q Schedule) Status() schedule.Status {
	jobs, _ := q.Jobs.V.(map[string]any)
	return schedule.Status{Jobs: jobs, Next: q.Next, Origins: q.Origins, Revision: q.Revision}
}

// ScheduleAction is what to do with the schedule.
type ScheduleAction string

// The actions.
const (
	ScheduleSet    ScheduleAction = "set"
	ScheduleRun    ScheduleAction = "run"
	ScheduleReload ScheduleAction = "reload"
)
