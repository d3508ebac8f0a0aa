package module

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/schedule"
)

// Scheduler is the minion's schedule.
type Scheduler interface {
	// Schedule returns the schedule that is in force; its jobs are a copy.
	Schedule(ctx context.Context) (schedule.Status, error)
	// SetSchedule replaces its jobs, if they can be read; save keeps them over a restart.
	SetSchedule(ctx context.Context, jobs map[string]any, save bool) error
	// RunScheduled starts a job now, beside the clock.
	RunScheduled(ctx context.Context, name string) error
	// ReloadSchedule takes it from the configuration files again.
	ReloadSchedule(ctx context.Context) error
}

// persist is the parameter of the functions that change the schedule.
var persist = Param{Name: "persist", Kind: Bool, Default: true}

// jobName is the parameter that names a job.
var jobName = Param{Name: "name", Kind: String, Required: true}

// scheduleModule runs functions by the clock.
var scheduleModule = &Module{
	Name: "schedule",
	Doc:  "Functions that show and change what this minion runs by the clock. A change is kept in _schedule.conf beside the configuration, unless persist=False.",
	Functions: []Function{
		{
			Name:    "add",
			Doc:     "Add a job. Its arguments by name are the keys of a job in the setting schedule.",
			Example: `salt '*' schedule.add check function=cmd.run_all job_args="['check_procs -w 150']" minutes=5 returner=master_bus`,
			Params:  []Param{jobName, persist},
			Kwargs:  true,
			Calls: &Calls{Read: addedJob, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.changeJob(ctx, r, "Added job: %s to schedule.", func(jobs map[string]any, name string) (string, bool) {
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
			Doc:     "Delete a job. Of one that stands in the configuration too it is kept that it was deleted; schedule.list shows both.",
			Example: `salt '*' schedule.delete check`,
			Params:  []Param{jobName, persist},
			Calls: &Calls{Read: nothing, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.changeJob(ctx, r, "Deleted Job %s from schedule.", func(jobs map[string]any, name string) (string, bool) {
					if _, isJob := jobs[name].(map[string]any); !isJob { // enabled is none, and to drop it is to enable
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
			Params:  []Param{persist},
			Calls: &Calls{Read: nothing, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.switchSchedule(ctx, r, "Disabled schedule on minion.", false)
			}},
		},
		{
			Name:    "disable_job",
			Doc:     "Disable a job.",
			Example: `salt '*' schedule.disable_job check`,
			Params:  []Param{jobName, persist},
			Calls: &Calls{Read: nothing, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.switchJob(ctx, r, "Disabled Job %s in schedule.", false)
			}},
		},
		{
			Name:    "enable",
			Doc:     "Enable the whole schedule.",
			Example: `salt '*' schedule.enable`,
			Params:  []Param{persist},
			Calls: &Calls{Read: hidden, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.switchSchedule(ctx, r, "Enabled schedule on minion.", true)
			}},
		},
		{
			Name:    "enable_job",
			Doc:     "Enable a job.",
			Example: `salt '*' schedule.enable_job check`,
			Params:  []Param{jobName, persist},
			Calls: &Calls{Read: hidden, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.switchJob(ctx, r, "Enabled Job %s in schedule.", true)
			}},
		},
		{
			Name:    "is_enabled",
			Doc:     "Return a job if it is enabled, else an empty dictionary; without a name, whether the schedule is enabled.",
			Example: "salt '*' schedule.is_enabled\nsalt '*' schedule.is_enabled name=check",
			Params:  []Param{{Name: "name", Kind: String}},
			Run:     scheduleIsEnabled,
		},
		{
			Name:    "list",
			Doc:     "Return the jobs as YAML, or as a dictionary with return_yaml=False: each with the file it comes from, and what the configuration says of it if that is not in force. show_disabled=False leaves out those that are disabled.",
			Example: `salt '*' schedule.list`,
			Params:  []Param{{Name: "show_all", Kind: Bool, Default: false}, {Name: "show_disabled", Kind: Bool, Default: true}, {Name: "return_yaml", Kind: Bool, Default: true}},
			Run:     scheduleList,
		},
		{
			Name:    "modify",
			Doc:     "Change a job: the given keys replace those that it has, None takes one away.",
			Example: `salt '*' schedule.modify check minutes=10`,
			Params:  []Param{jobName, persist},
			Kwargs:  true,
			Calls: &Calls{Read: modifiedJob, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.changeJob(ctx, r, "Modified job: %s in schedule.", func(jobs map[string]any, name string) (string, bool) {
					old, ok := jobs[name].(map[string]any)
					if !ok {
						return noJob(name), false
					}
					changed := maps.Clone(old)
					maps.Copy(changed, c.Extra())
					maps.DeleteFunc(changed, func(_ string, v any) bool { return v == nil })
					jobs[name] = changed
					return "", true
				})
			}},
		},
		{
			Name:    "reload",
			Doc:     "Take the schedule from the configuration files again.",
			Example: `salt '*' schedule.reload`,
			Calls: &Calls{Read: hidden, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				s, err := r.scheduler()
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
			Params:  []Param{jobName, {Name: "force", Kind: Bool, Default: false}},
			Calls:   &Calls{Read: hidden, Run: scheduleRun},
		},
		{
			Name:    "save",
			Doc:     "Keep the schedule as it is over a restart.",
			Example: `salt '*' schedule.save`,
			Calls: &Calls{Read: hidden, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				s, now, err := r.schedule(ctx)
				if err != nil {
					return nil, err
				}
				return outcomeOf("Schedule (non-pillar items) saved.", s.SetSchedule(ctx, now.Jobs, true))
			}},
		},
		{
			Name:    "show_next_fire_time",
			Doc:     "Return when a job starts next.",
			Example: `salt '*' schedule.show_next_fire_time check`,
			Params:  []Param{jobName},
			Run:     scheduleNext,
		},
	},
}

// addedJob reads what a job runs that is added.
func addedJob(a *Arguments) Reading {
	inner, ok := scheduled(a.Extra())
	return Reading{Inner: inner, Hidden: !ok}
}

// modifiedJob reads what a job runs once it is changed. What is not given is taken
// from the job as it stands, which the arguments do not tell.
func modifiedJob(a *Arguments) Reading {
	given := a.Extra()
	if given["function"] == nil {
		return Reading{Hidden: true}
	}
	inner, ok := scheduled(given)
	return Reading{Inner: inner, Hidden: !ok || given["job_args"] == nil || given["job_kwargs"] == nil}
}

// scheduled reads the command of a job, whenever it is due, and the event that its
// return is to be.
func scheduled(given map[string]any) ([]Inner, bool) {
	what := map[string]any{"seconds": int64(1)}
	for _, key := range []string{"function", "args", "job_args", "kwargs", "job_kwargs", "tag"} {
		what[key] = given[key]
	}
	j, err := schedule.ParseJob("", what, time.UTC)
	if err != nil {
		return nil, false
	}
	list := []Inner{{Command: Command{Function: j.Function, Args: j.Args, Kwargs: j.Kwargs}}}
	if j.ReturnTag != "" {
		list = append(list, Inner{Command: Sending(j.ReturnTag)})
	}
	return list, true
}

// Sending is what a return amounts to that a minion fires as an event with a tag that
// somebody has chosen: that function, with the tag alone.
func Sending(tag string) Command { return Command{Function: "event.send", Args: []any{tag}} }

// schedule is the schedule as it stands.
func (c *Call) schedule(ctx context.Context) (now schedule.Status, err error) {
	if c.Host.Scheduler == nil {
		err = unavailable("schedule")
	} else {
		now, err = c.Host.Scheduler.Schedule(ctx)
	}
	if now.Jobs == nil {
		now.Jobs = map[string]any{}
	}
	return now, err
}

func noJob(name string) string { return fmt.Sprintf("Job %s does not exist.", name) }

// outcomeOf is the answer in Salt's form; an error is a failure with its text.
func outcomeOf(comment string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"result": true, "comment": comment}, nil
}

// changeJob edits the job that the argument name names. edit returns why it can not,
// or true.
func (c *Call) changeJob(ctx context.Context, r *Caller, done string, edit func(jobs map[string]any, name string) (string, bool)) (any, error) {
	s, now, err := r.schedule(ctx)
	if err != nil {
		return nil, err
	}
	name := c.String("name")
	if why, ok := edit(now.Jobs, name); !ok {
		return map[string]any{"result": false, "comment": why}, nil
	}
	if err := s.SetSchedule(ctx, now.Jobs, c.Bool("persist")); err != nil {
		return nil, err
	}
	if now, err = s.Schedule(ctx); err != nil {
		return nil, err
	}
	return outcomeOf(fmt.Sprintf(done, name)+inForce(now.Origins[name]), nil)
}

// inForce says which of two definitions of a job is in force, where there are two.
func inForce(o schedule.Origin) string {
	switch {
	case o.Configured == nil:
		return ""
	case o.Deleted:
		return fmt.Sprintf(" It still stands in %s, and is not in force; the change goes before it.", o.ConfiguredAt)
	}
	return fmt.Sprintf(" What stands in %s is not in force; the change goes before it.", o.ConfiguredAt)
}

func (c *Call) switchJob(ctx context.Context, r *Caller, done string, on bool) (any, error) {
	return c.changeJob(ctx, r, done, func(jobs map[string]any, name string) (string, bool) {
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

func (c *Call) switchSchedule(ctx context.Context, r *Caller, done string, on bool) (any, error) {
	s, now, err := r.schedule(ctx)
	if err != nil {
		return nil, err
	}
	now.Jobs["enabled"] = on
	return outcomeOf(done, s.SetSchedule(ctx, now.Jobs, c.Bool("persist")))
}

// isOn says whether a job or the schedule is enabled, which is what it is when
// nothing is said.
func isOn(dict map[string]any) bool { return dict["enabled"] != false }

func scheduleIsEnabled(ctx context.Context, c *Call) (any, error) {
	now, err := c.schedule(ctx)
	if err != nil || !c.Has("name") {
		return isOn(now.Jobs), err
	}
	if job, ok := now.Jobs[c.String("name")].(map[string]any); ok && isOn(job) {
		return job, nil
	}
	return map[string]any{}, nil
}

func scheduleList(ctx context.Context, c *Call) (any, error) {
	now, err := c.schedule(ctx)
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
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(map[string]any{"schedule": jobs}); err != nil {
		return nil, err
	}
	return b.String(), e.Close()
}

// withOrigins returns the jobs, each with the place that it comes from; one that stands
// in the configuration too, in another form or deleted here, with that below it.
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
		if o.Configured != nil {
			job["_not_in_force"] = map[string]any{"_source": o.ConfiguredAt, "job": o.Configured}
		}
		jobs[name] = job
	}
	return jobs
}

func scheduleRun(ctx context.Context, c *Call, r *Caller) (any, error) {
	s, now, err := r.schedule(ctx)
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

func scheduleNext(ctx context.Context, c *Call) (any, error) {
	now, err := c.schedule(ctx)
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
