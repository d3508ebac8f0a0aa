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

	Origins map[string]ScheduleOrigin `json:"origins,omitempty"`
}

// ScheduleOrigin is schedule.Origin.
type ScheduleOrigin struct {
	Place        string      `json:"place,omitempty"`
	Deleted      bool        `json:"deleted,omitempty"`
	Configured   value.Value `json:"configured"`
	ConfiguredAt string      `json:"configured_at,omitempty"`
}

// NewSchedule is the answer that tells s.
func NewSchedule(s schedule.Status) Schedule {
	q := Schedule{Jobs: value.Value{V: s.Jobs}, Next: s.Next, Origins: map[string]ScheduleOrigin{}}
	for name, o := range s.Origins {
		q.Origins[name] = ScheduleOrigin{Place: o.Place, Deleted: o.Deleted, Configured: value.Value{V: o.Configured}, ConfiguredAt: o.ConfiguredAt}
	}
	return q
}

// Status returns what the answer tells.
func (q Schedule) Status() schedule.Status {
	jobs, _ := q.Jobs.V.(map[string]any)
	s := schedule.Status{Jobs: jobs, Next: q.Next, Origins: map[string]schedule.Origin{}}
	for name, o := range q.Origins {
		s.Origins[name] = schedule.Origin{Place: o.Place, Deleted: o.Deleted, Configured: o.Configured.V, ConfiguredAt: o.ConfiguredAt}
	}
	return s
}

// ScheduleAction is what Schedule asks for.
type ScheduleAction string

// The actions.
const (
	ScheduleSet    ScheduleAction = "set"
	ScheduleRun    ScheduleAction = "run"
	ScheduleReload ScheduleAction = "reload"
)
