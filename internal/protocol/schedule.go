package protocol

import (
	"time"

	"github.com/brinebus/brine/internal/schedule"
	"github.com/brinebus/brine/internal/value"
)

// OpSchedule is for the schedule of a minion's daemon: Schedule → Schedule, as it is
// then.
const OpSchedule = "schedule"

// Schedule asks for something to be done with the schedule, and shows it.
type Schedule struct {
	Do   ScheduleAction       `json:"do,omitempty"` // "" shows it only
	Jobs value.Value          `json:"jobs"`         // as the setting schedule has it
	Next map[string]time.Time `json:"next,omitempty"`
	Save bool                 `json:"save,omitempty"` // keep what is set over a restart
	Name string               `json:"name,omitempty"` // of the job to run

	Origins map[string]schedule.Origin `json:"origins,omitempty"`
}

// NewSchedule is the answer that tells s.
func NewSchedule(s schedule.Status) Schedule {
	return Schedule{Jobs: value.Value{V: s.Jobs}, Next: s.Next, Origins: s.Origins}
}

// Status returns what the answer tells.
func (q Schedule) Status() schedule.Status {
	jobs, _ := q.Jobs.V.(map[string]any)
	return schedule.Status{Jobs: jobs, Next: q.Next, Origins: q.Origins}
}

// ScheduleAction is what Schedule asks for.
type ScheduleAction string

// The actions.
const (
	ScheduleSet    ScheduleAction = "set"
	ScheduleRun    ScheduleAction = "run"
	ScheduleReload ScheduleAction = "reload"
)
