package schedule

import (
	"maps"
	"reflect"
	"time"

	"github.com/brinebus/brine/internal/value"
)

// Status is the schedule that is in force.
type Status struct {
	Jobs    map[string]any       // as the setting schedule has it
	Next    map[string]time.Time // when each job starts next
	Origins map[string]Origin    // of each job, and of those of the configuration that are not in force
}

// Origin is where a job comes from.
type Origin struct {
	Place   string `json:"place,omitempty"`   // file:line of the configuration, or the file of changes; "" is kept nowhere
	Deleted bool   `json:"deleted,omitempty"` // the configuration has it, and it was deleted
	// What the configuration says of this job, and where, if that is not in force.
	Configured   value.Value `json:"configured"`
	ConfiguredAt string      `json:"configured_at,omitempty"`
}

// Changes returns in what jobs differ from the configured ones: those that are new or
// other, and nil for those that are not there.
func Changes(configured, jobs map[string]any) map[string]any {
	changes := map[string]any{}
	for name, job := range jobs {
		if then, ok := configured[name]; !ok || !reflect.DeepEqual(then, job) {
			changes[name] = job
		}
	}
	for name := range configured {
		if _, ok := jobs[name]; !ok {
			changes[name] = nil
		}
	}
	return changes
}

// Changed returns the configured jobs with the changes: the inverse of Changes.
func Changed(configured, changes map[string]any) map[string]any {
	jobs := maps.Clone(configured)
	if jobs == nil {
		jobs = map[string]any{}
	}
	for name, job := range changes {
		if job == nil {
			delete(jobs, name)
			continue
		}
		jobs[name] = job
	}
	return jobs
}
