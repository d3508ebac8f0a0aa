package schedule

import (
	"errors"
	"maps"
	"reflect"
	"time"

	"github.com/brinebus/brine/internal/value"
)

// Status is the schedule that is in force.
type Status struct {
	Jobs    map[string]any       // as in the setting schedule
	Next    map[string]time.Time // when each job starts next
	Origins map[string]Origin    // of each job, and of configured jobs that are not in force
	// Revision grows with each change; 0 if the daemon is older than revisions.
	Revision uint64
}

// ErrChanged means that a schedule was changed after it was read, by somebody else.
var ErrChanged = errors.New("the schedule was changed meanwhile")

// Origin is the source of a job.
type Origin struct {
	Place   string `json:"place,omitempty"`   // file:line of the configuration, or the file of changes; "" if it is not saved
	Deleted bool   `json:"deleted,omitempty"` // it is configured but was deleted
	// The configuration of this job and its position, if that is not in force.
	Configured   value.Value `json:"configured"`
	ConfiguredAt string      `json:"configured_at,omitempty"`
}

// Changes returns the differences between jobs and the configured ones: new and changed jobs, and
// nil for deleted ones.
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

// Changed applies the changes to the configured jobs: the inverse of Changes.
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
