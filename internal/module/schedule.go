package module

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/schedule"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Scheduler is the minion's schedule.
type Scheduler interface {
	// Schedule returns the schedule in force, with a copy of its jobs.
	Schedule(ctx context.Context) (schedule.Status, error)
	// SetSchedule replaces its jobs by those of s, if they are valid and the schedule is still of the
	// revision of s; save keeps them over a restart.
	SetSchedule(ctx context.Context, s schedule.Status, save bool) error
	// RunScheduled starts a job now, independently of its times.
	RunScheduled(ctx context.Context, name string) error
	// ReloadSchedule reads the schedule from the configuration files again.
	ReloadSchedule(ctx context.Context) error
}

// persist is the parameter of the functions that change the schedule.
var persist = function.Param{Name: "persist", Kind: function.Bool, Default: true}

// jobName is the parameter that names a job.
var jobName = function.Param{Name: "name", Kind: function.String, Required: true}

// scheduleModule manages the schedule.
var scheduleModule = &function.Module{
	Name: "schedule",
	Doc:  "Functions that show and change the schedule of this minion: the jobs that it starts by itself at set times. A change is kept in _schedule.conf beside the configuration; with persist=False it is in force until the next start, unless the same job is changed without it, or schedule.save is called.",
	Functions: []function.Function{
		{
			Name:    "add",
			Doc:     "Add a job. Its arguments by name are the keys of a job in the setting schedule.",
			Example: `salt '*' schedule.add check function=cmd.run_all job_args="['check_procs -w 150']" minutes=5 returner=master_bus`,
			Params:  []function.Param{jobName, persist},
			Kwargs:  true,
			Calls: &function.Calls{Read: addedJob, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				if err := r.Known(ctx); err != nil {
					return nil, err
				}
				return changeJob(ctx, c, r, "Added job: %s to schedule.", func(jobs map[string]any, name string) (string, bool) {
					if jobs[name] != nil {
						return fmt.Sprintf("Job %s already exists in schedule.", name), false
					}
					jobs[name] = maps.Clone(c.Extra())
					return "", true
				})
			}},
		},
		{
			Name:    "delete",
			Doc:     "Delete a job. For a job that is also in the configuration the deletion is recorded; schedule.list shows both.",
			Example: `salt '*' schedule.delete check`,
			Params:  []function.Param{jobName, persist},
			Calls: &function.Calls{Read: function.Nothing, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return changeJob(ctx, c, r, "Deleted Job %s from schedule.", func(jobs map[string]any, name string) (string, bool) {
					if _, isJob := jobs[name].(map[string]any); !isJob { // "enabled" is not a job, and removing it means enabling
						return noJob(name), false
					}
					delete(jobs, name)
					return "", true
				})
			}},
		},
		{
			Name:    "disable",
			Doc:     "Disable the whole schedule.",
			Example: `salt '*' schedule.disable`,
			Params:  []function.Param{persist},
			Calls: &function.Calls{Read: function.Nothing, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return switchSchedule(ctx, c, r, "Disabled schedule on minion.", false)
			}},
		},
		{
			Name:    "disable_job",
			Doc:     "Disable a job.",
			Example: `salt '*' schedule.disable_job check`,
			Params:  []function.Param{jobName, persist},
			Calls: &function.Calls{Read: function.Nothing, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return switchJob(ctx, c, r, "Disabled Job %s in schedule.", false)
			}},
		},
		{
			Name:    "enable",
			Doc:     "Enable the whole schedule.",
			Example: `salt '*' schedule.enable`,
			Params:  []function.Param{persist},
			Calls: &function.Calls{Read: function.Hidden, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return switchSchedule(ctx, c, r, "Enabled schedule on minion.", true)
			}},
		},
		{
			Name:    "enable_job",
			Doc:     "Enable a job.",
			Example: `salt '*' schedule.enable_job check`,
			Params:  []function.Param{jobName, persist},
			Calls: &function.Calls{Read: function.Hidden, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return switchJob(ctx, c, r, "Enabled Job %s in schedule.", true)
			}},
		},
		{
			Name:    "is_enabled",
			Doc:     "Return a job if it is enabled, else an empty dictionary; without a name, whether the schedule is enabled.",
			Example: "salt '*' schedule.is_enabled\nsalt '*' schedule.is_enabled name=check",
			Params:  []function.Param{{Name: "name", Kind: function.String}},
			Run:     scheduleIsEnabled,
		},
		{
			Name:    "list",
			Doc:     "Return the jobs as YAML, or as a dictionary with return_yaml=False: each with the file it comes from, and what the configuration says of it if that is not in force. show_disabled=False leaves out those that are disabled.",
			Example: `salt '*' schedule.list`,
			Params:  []function.Param{{Name: "show_all", Kind: function.Bool, Default: false}, {Name: "show_disabled", Kind: function.Bool, Default: true}, {Name: "return_yaml", Kind: function.Bool, Default: true}},
			Run:     scheduleList,
		},
		{
			Name:    "modify",
			Doc:     "Change a job: the given keys replace those that it has, None removes one.",
			Example: `salt '*' schedule.modify check minutes=10`,
			Params:  []function.Param{jobName, persist},
			Kwargs:  true,
			Calls: &function.Calls{Read: modifiedJob, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				if err := r.Known(ctx); err != nil {
					return nil, err
				}
				var refused error
				done, err := changeJob(ctx, c, r, "Modified job: %s in schedule.", func(jobs map[string]any, name string) (string, bool) {
					old, ok := jobs[name].(map[string]any)
					if !ok {
						return noJob(name), false
					}
					changed := maps.Clone(old)
					maps.Copy(changed, c.Extra())
					maps.DeleteFunc(changed, func(_ string, v any) bool { return v == nil })
					jobs[name] = changed
					refused = keepsTag(r, changed)
					return "", refused == nil
				})
				return done, cmp.Or(refused, err)
			}},
		},
		{
			Name:    "reload",
			Doc:     "Read the schedule from the configuration files again, without the changes that were made with persist=False.",
			Example: `salt '*' schedule.reload`,
			Calls: &function.Calls{Read: function.Hidden, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				s, err := scheduleOf(r.Host())
				if err != nil {
					return nil, err
				}
				return outcomeOf("Reloaded schedule on minion.", s.ReloadSchedule(ctx))
			}},
		},
		{
			Name:    "run_job",
			Doc:     "Run a job now. One that is disabled needs force=True.",
			Example: `salt '*' schedule.run_job check`,
			Params:  []function.Param{jobName, {Name: "force", Kind: function.Bool, Default: false}},
			Calls:   &function.Calls{Read: function.Hidden, Run: scheduleRun},
		},
		{
			Name:    "save",
			Doc:     "Save the schedule, so that it stays as it is over a restart.",
			Example: `salt '*' schedule.save`,
			Calls: &function.Calls{Read: function.Hidden, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return outcomeOf("Schedule (non-pillar items) saved.", editSchedule(ctx, r, true, func(map[string]any) bool { return true }))
			}},
		},
		{
			Name:    "show_next_fire_time",
			Doc:     "Return when a job starts next.",
			Example: `salt '*' schedule.show_next_fire_time check`,
			Params:  []function.Param{jobName},
			Run:     scheduleNext,
		},
	},
}

// addedJob reads what a new job runs.
func addedJob(a *function.Arguments) function.Reading {
	inner, ok := scheduled(a.Extra())
	return function.Reading{Inner: inner, Hidden: !ok}
}

// modifiedJob reads what a changed job runs. Missing parts come from the current job, which is not
// in the arguments.
func modifiedJob(a *function.Arguments) function.Reading {
	given := a.Extra()
	if given["function"] == nil {
		return function.Reading{Hidden: true}
	}
	inner, ok := scheduled(given)
	return function.Reading{Inner: inner, Hidden: !ok || given["job_args"] == nil || given["job_kwargs"] == nil}
}

// keepsTag refuses to change the function of a job that keeps its tag: the returns of the new one
// would be events that nobody has authorised.
func keepsTag(r *function.Caller, job map[string]any) error {
	tag, _ := job["tag"].(string)
	if tag == "" {
		return nil
	}
	return r.Keeps(function.Inner{Command: Sending(tag)})
}

// scheduled reads the command of a job, regardless of its times, and the event for its return.
func scheduled(given map[string]any) ([]function.Inner, bool) {
	what := map[string]any{"seconds": int64(1)}
	for _, key := range []string{"function", "args", "job_args", "kwargs", "job_kwargs", "tag"} {
		what[key] = given[key]
	}
	j, err := schedule.ParseJob("", what, time.UTC)
	if err != nil {
		return nil, false
	}
	list := []function.Inner{{Command: salt.Command{Function: j.Function, Args: j.Args, Kwargs: j.Kwargs}}}
	if j.ReturnTag != "" {
		list = append(list, function.Inner{Command: Sending(j.ReturnTag)})
	}
	return list, true
}

// Sending returns the function call that corresponds to firing a return as an event with a custom
// tag: it contains only the tag.
func Sending(tag string) salt.Command {
	return salt.Command{Function: "event.send", Args: []any{tag}}
}

// currentSchedule returns the current schedule.
func currentSchedule(ctx context.Context, h *function.Host) (now schedule.Status, err error) {
	s, err := scheduleOf(h)
	if err == nil {
		now, err = s.Schedule(ctx)
	}
	if now.Jobs == nil {
		now.Jobs = map[string]any{}
	}
	return now, err
}

// changeableSchedule returns the minion's scheduler, for changes, and the current schedule.
func changeableSchedule(ctx context.Context, r *function.Caller) (Scheduler, schedule.Status, error) {
	s, err := scheduleOf(r.Host())
	if err != nil {
		return nil, schedule.Status{}, err
	}
	now, err := currentSchedule(ctx, r.Host())
	return s, now, err
}

func noJob(name string) string { return fmt.Sprintf("Job %s does not exist.", name) }

// outcomeOf returns the result in Salt's form; an error is a failure with its text.
func outcomeOf(comment string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"result": true, "comment": comment}, nil
}

// editSchedule changes the schedule by edit, which returns false to change nothing. If somebody else has
// changed it since it was read, edit decides anew: otherwise that change would be undone.
func editSchedule(ctx context.Context, r *function.Caller, save bool, edit func(jobs map[string]any) bool) error {
	s, now, err := changeableSchedule(ctx, r)
	for err == nil && edit(now.Jobs) {
		failed := s.SetSchedule(ctx, now, save)
		if failed == nil {
			return nil
		}
		read := now.Revision
		if now, err = currentSchedule(ctx, r.Host()); err != nil || now.Revision == read {
			return failed
		}
	}
	return err
}

// changeJob edits the job of the argument name. edit returns why it cannot, or true.
func changeJob(ctx context.Context, c *function.Call, r *function.Caller, done string, edit func(jobs map[string]any, name string) (string, bool)) (any, error) {
	name, why, ok := c.String("name"), "", false
	err := editSchedule(ctx, r, c.Bool("persist"), func(jobs map[string]any) bool {
		why, ok = edit(jobs, name)
		return ok
	})
	if err != nil {
		return nil, err
	}
	if !ok {
		return map[string]any{"result": false, "comment": why}, nil
	}
	now, err := currentSchedule(ctx, r.Host())
	if err != nil {
		return nil, err
	}
	return outcomeOf(fmt.Sprintf(done, name)+inForce(now.Origins[name]), nil)
}

// inForce says which of two definitions of a job is in force, if there are two.
func inForce(o schedule.Origin) string {
	switch {
	case o.Configured.V == nil:
		return ""
	case o.Deleted:
		return fmt.Sprintf(" It is still in %s, without effect: the change takes precedence.", o.ConfiguredAt)
	}
	return fmt.Sprintf(" The job in %s has no effect: the change takes precedence.", o.ConfiguredAt)
}

func switchJob(ctx context.Context, c *function.Call, r *function.Caller, done string, on bool) (any, error) {
	return changeJob(ctx, c, r, done, func(jobs map[string]any, name string) (string, bool) {
		job, ok := jobs[name].(map[string]any)
		if !ok {
			return noJob(name), false
		}
		job = maps.Clone(job)
		job["enabled"] = on
		jobs[name] = job
		return "", true
	})
}

func switchSchedule(ctx context.Context, c *function.Call, r *function.Caller, done string, on bool) (any, error) {
	return outcomeOf(done, editSchedule(ctx, r, c.Bool("persist"), func(jobs map[string]any) bool {
		jobs["enabled"] = on
		return true
	}))
}

// isOn reports whether a job or the schedule is enabled, which is the default.
func isOn(dict map[string]any) bool { return dict["enabled"] != false }

func scheduleIsEnabled(ctx context.Context, c *function.Call) (any, error) {
	now, err := currentSchedule(ctx, c.Host)
	if err != nil || !c.Has("name") {
		return isOn(now.Jobs), err
	}
	if job, ok := now.Jobs[c.String("name")].(map[string]any); ok && isOn(job) {
		return job, nil
	}
	return map[string]any{}, nil
}

func scheduleList(ctx context.Context, c *function.Call) (any, error) {
	now, err := currentSchedule(ctx, c.Host)
	if err != nil {
		return nil, err
	}
	jobs := withOrigins(now)
	maps.DeleteFunc(jobs, func(name string, v any) bool {
		job, ok := v.(map[string]any)
		return strings.HasPrefix(name, "__") && !c.Bool("show_all") || ok && !isOn(job) && !c.Bool("show_disabled")
	})
	if len(jobs) == 0 || !c.Bool("return_yaml") {
		return map[string]any{"schedule": jobs}, nil
	}
	return yamlfile.Format(map[string]any{"schedule": jobs})
}

// withOrigins returns the jobs, each with its source. If the configuration has a different version
// of a job, or the job was deleted here, that version is included below it.
func withOrigins(now schedule.Status) map[string]any {
	jobs := maps.Clone(now.Jobs)
	for name, o := range now.Origins {
		job, ok := jobs[name].(map[string]any)
		if !ok && !o.Deleted {
			continue // a setting of the whole schedule
		}
		job = maps.Clone(job)
		if job == nil {
			job = map[string]any{"deleted": true}
		}
		if o.Place != "" {
			job["_source"] = o.Place
		}
		if o.Configured.V != nil {
			job["_not_in_force"] = map[string]any{"_source": o.ConfiguredAt, "job": o.Configured.V}
		}
		jobs[name] = job
	}
	return jobs
}

func scheduleRun(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	s, now, err := changeableSchedule(ctx, r)
	if err != nil {
		return nil, err
	}
	name := c.String("name")
	switch job, ok := now.Jobs[name].(map[string]any); {
	case !ok:
		return map[string]any{"result": false, "comment": noJob(name)}, nil
	case !isOn(job) && !c.Bool("force"):
		return map[string]any{"result": false, "comment": fmt.Sprintf("Job %s is disabled.", name)}, nil
	}
	return outcomeOf(fmt.Sprintf("Scheduling Job %s on minion.", name), s.RunScheduled(ctx, name))
}

func scheduleNext(ctx context.Context, c *function.Call) (any, error) {
	now, err := currentSchedule(ctx, c.Host)
	if err != nil {
		return nil, err
	}
	name := c.String("name")
	at := now.Next[name]
	switch {
	case now.Jobs[name] == nil:
		return map[string]any{"result": false, "comment": noJob(name)}, nil
	case at.IsZero():
		return map[string]any{"result": true, "next_fire_time": nil}, nil
	}
	return map[string]any{"result": true, "next_fire_time": at.Format("2006-01-02T15:04:05")}, nil
}
