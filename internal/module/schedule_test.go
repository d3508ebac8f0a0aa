package module

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/schedule"
)

// scheduler is a schedule that remembers.
type scheduler struct {
	jobs    map[string]any
	next    map[string]time.Time
	saved   bool
	ran     []string
	loaded  int
	origins map[string]schedule.Origin
	refuse  error
	changes uint64
	read    func() // called once, after the next reading
}

func (s *scheduler) Schedule(context.Context) (schedule.Status, error) {
	now := schedule.Status{Jobs: maps.Clone(s.jobs), Next: s.next, Origins: s.origins, Revision: s.changes + 1}
	if read := s.read; read != nil {
		s.read = nil
		read()
	}
	return now, nil
}

func (s *scheduler) SetSchedule(_ context.Context, to schedule.Status, save bool) error {
	if to.Revision != s.changes+1 {
		return schedule.ErrChanged
	}
	if s.refuse == nil {
		s.jobs, s.saved = to.Jobs, save
		s.changes++
	}
	return s.refuse
}

func (s *scheduler) RunScheduled(_ context.Context, name string) error {
	s.ran = append(s.ran, name)
	return s.refuse
}

func (s *scheduler) ReloadSchedule(context.Context) error { s.loaded++; return s.refuse }

func TestSchedule(t *testing.T) {
	s := &scheduler{jobs: map[string]any{}, next: map[string]time.Time{"check": time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)}}
	h := &function.Host{Services: &Services{Scheduler: s}}
	yes := func(comment string) map[string]any { return map[string]any{"result": true, "comment": comment} }
	same(t, "empty", good(t, h, "schedule.list", nil), map[string]any{"schedule": map[string]any{}})
	same(t, "add", good(t, h, "schedule.add", map[string]any{"function": "test.ping", "minutes": int64(5)}, "check"), yes("Added job: check to schedule."))
	job := map[string]any{"function": "test.ping", "minutes": int64(5)}
	same(t, "jobs", s.jobs, map[string]any{"check": job})
	if !s.saved {
		t.Error("a new job is not saved")
	}
	same(t, "list", good(t, h, "schedule.list", nil), "schedule:\n  check:\n    function: test.ping\n    minutes: 5\n")
	same(t, "list as data", good(t, h, "schedule.list", map[string]any{"return_yaml": false}), map[string]any{"schedule": map[string]any{"check": job}})
	same(t, "modify", good(t, h, "schedule.modify", map[string]any{"minutes": nil, "hours": int64(1), "persist": false}, "check"), yes("Modified job: check in schedule."))
	same(t, "modified", s.jobs, map[string]any{"check": map[string]any{"function": "test.ping", "hours": int64(1)}})
	if s.saved {
		t.Error("persist=False is saved")
	}
	same(t, "is_enabled", good(t, h, "schedule.is_enabled", nil, "check"), s.jobs["check"])
	same(t, "disable_job", good(t, h, "schedule.disable_job", nil, "check"), yes("Disabled Job check in schedule."))
	same(t, "is_enabled of a disabled one", good(t, h, "schedule.is_enabled", nil, "check"), map[string]any{})
	same(t, "list without disabled ones", good(t, h, "schedule.list", map[string]any{"show_disabled": false}), map[string]any{"schedule": map[string]any{}})
	bad2 := func(function, comment string, args ...any) {
		t.Helper()
		r := run(t, h, function, nil, args...)
		same(t, function, r.Return, map[string]any{"result": false, "comment": comment})
		if r.Success {
			t.Errorf("%s%v is a success", function, args)
		}
	}
	bad2("schedule.run_job", "Job check is disabled.", "check")
	same(t, "run_job by force", good(t, h, "schedule.run_job", map[string]any{"force": true}, "check"), yes("Scheduling Job check on minion."))
	same(t, "enable_job", good(t, h, "schedule.enable_job", nil, "check"), yes("Enabled Job check in schedule."))
	same(t, "run_job", good(t, h, "schedule.run_job", nil, "check"), yes("Scheduling Job check on minion."))
	same(t, "ran", len(s.ran), 2)
	same(t, "next", good(t, h, "schedule.show_next_fire_time", nil, "check"), map[string]any{"result": true, "next_fire_time": "2026-11-21T17:00:00"})
	same(t, "disable", good(t, h, "schedule.disable", nil), yes("Disabled schedule on minion."))
	same(t, "is_enabled of the schedule", good(t, h, "schedule.is_enabled", nil), false)
	same(t, "enable", good(t, h, "schedule.enable", nil), yes("Enabled schedule on minion."))
	same(t, "is_enabled of the schedule", good(t, h, "schedule.is_enabled", nil), true)
	same(t, "reload", good(t, h, "schedule.reload", nil), yes("Reloaded schedule on minion."))
	same(t, "save", good(t, h, "schedule.save", nil), yes("Schedule (non-pillar items) saved."))
	for _, f := range []string{"delete", "modify", "enable_job", "disable_job", "run_job", "show_next_fire_time"} {
		bad2("schedule."+f, "Job nosuch does not exist.", "nosuch")
	}
	bad2("schedule.add", "Job check already exists in schedule.", "check")
	same(t, "delete", good(t, h, "schedule.delete", nil, "check"), yes("Deleted Job check from schedule."))
	if s.jobs["check"] != nil || s.loaded != 1 {
		t.Errorf("at the end: %+v", s)
	}
}

func TestScheduleRefusals(t *testing.T) {
	h := &function.Host{Services: &Services{Scheduler: &scheduler{jobs: map[string]any{"check": map[string]any{}}, refuse: errors.New("job x: it needs a time")}}}
	bad(t, h, "schedule.add", "it needs a time", map[string]any{"function": "test.ping"}, "x")
	bad(t, h, "schedule.run_job", "it needs a time", nil, "check")
	bad(t, h, "schedule.reload", "it needs a time", nil)
	bad(t, nil, "schedule.list", "schedule: not available here", nil)
}

// TestChangesOfTheScheduleAtOnce: two jobs of a master change the schedule of a minion at the same time.
// Neither undoes the change of the other, and what is checked is what is then in force.
func TestChangesOfTheScheduleAtOnce(t *testing.T) {
	s := &scheduler{jobs: map[string]any{}}
	h := &function.Host{Services: &Services{Scheduler: s}}
	add := func(name string) any {
		t.Helper()
		return good(t, h, "schedule.add", map[string]any{"function": "test.ping", "minutes": int64(5)}, name)
	}
	s.read = func() { add("first") }
	add("second")
	if s.jobs["first"] == nil || s.jobs["second"] == nil {
		t.Errorf("of two jobs that were added at once there is %v", s.jobs)
	}
	s.read = func() { add("third") }
	again := run(t, h, "schedule.add", map[string]any{"function": "test.ping", "hours": int64(1)}, "third")
	same(t, "the same job", again.Return, map[string]any{"result": false, "comment": "Job third already exists in schedule."})
	s.read = func() { add("fourth") }
	good(t, h, "schedule.disable", nil)
	if s.jobs["fourth"] == nil || s.jobs["enabled"] != false {
		t.Errorf("the schedule is %v", s.jobs)
	}
}
