package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"brine/internal/event"
	"brine/internal/module"
	"brine/internal/salt"
	"brine/internal/value"
)

// errNoJob is the answer for a job of which the journal has nothing.
var errNoJob = errors.New("the journal has no job of this id")

// jobsModule reads past jobs from the journal.
func jobsModule(h *Host) *module.Module {
	j := jobs{h}
	jid := []module.Param{{Name: "jid", Kind: module.String, Required: true}}
	return &module.Module{Name: "jobs", Doc: "Jobs that were run, and what they returned.", Functions: []module.Function{
		{Name: "exit_success", Doc: "Return for each minion of a job whether it succeeded.", Example: "salt-run jobs.exit_success 20261121113344286549", Params: jid, Run: j.exitSuccess},
		{Name: "list_job", Doc: "Return what a job was and what each minion returned.", Example: "salt-run jobs.list_job 20261121113344286549", Params: jid, Run: j.listJob},
		{Name: "list_jobs", Doc: "Return the jobs of the journal, the newest last.", Example: "salt-run jobs.list_jobs\nsalt-run jobs.list_jobs since=2h fun=cmd user=fred",
			Params: []module.Param{
				{Name: "since", Kind: module.String}, {Name: "user", Kind: module.String}, {Name: "fun", Kind: module.String},
			}, Run: j.listJobs},
		{Name: "lookup_jid", Doc: "Return what each minion returned for a job.", Example: "salt-run jobs.lookup_jid 20261121113344286549", Params: jid, Run: j.lookup},
		{Name: "print_job", Doc: "Return a job as list_job does, below its id.", Example: "salt-run jobs.print_job 20261121113344286549", Params: jid, Run: j.printJob},
	}}
}

type jobs struct{ *Host }

// load is the start of a job as it was recorded.
type load struct {
	JID        salt.JID        `json:"jid"`
	Target     value.Value     `json:"tgt"`
	TargetType string          `json:"tgt_type"`
	User       string          `json:"user"`
	Fun        value.Value     `json:"fun"`
	Arg        value.Value     `json:"arg"`
	Minions    []salt.MinionID `json:"minions"`
}

// ret is the return of one minion as it was recorded.
type ret struct {
	ID      salt.MinionID `json:"id"`
	Return  value.Value   `json:"return"`
	Retcode value.Value   `json:"retcode"`
	Success value.Value   `json:"success"`
	Fun     value.Value   `json:"fun"`
	FunArgs value.Value   `json:"fun_args"`
	Killed  string        `json:"killed"`
}

// read returns the start of a job, nil for one that a minion ran by itself, and
// its returns.
func (j jobs) read(ctx context.Context, c *module.Call) (*load, []ret, error) {
	jid, err := salt.ParseJID(c.String("jid"))
	if err != nil {
		return nil, nil, err
	}
	var start *load
	var rets []ret
	err = j.Events(ctx, event.JobSubject(jid, ""), time.Time{}, func(e event.Event) error {
		switch {
		case strings.HasSuffix(e.Tag, "/new"):
			start = &load{}
			return json.Unmarshal(e.Data, start)
		case strings.Contains(e.Tag, "/ret/"):
			var r ret
			if err := json.Unmarshal(e.Data, &r); err != nil {
				return err
			}
			rets = append(rets, r)
		}
		return nil
	})
	if err == nil && start == nil && len(rets) == 0 {
		err = fmt.Errorf("%w: %s", errNoJob, jid)
	}
	return start, rets, err
}

func (j jobs) lookup(ctx context.Context, c *module.Call) (any, error) {
	_, rets, err := j.read(ctx, c)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, r := range rets {
		out[string(r.ID)] = r.Return.V
	}
	return out, nil
}

func (j jobs) exitSuccess(ctx context.Context, c *module.Call) (any, error) {
	start, rets, err := j.read(ctx, c)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if start != nil {
		for _, id := range start.Minions {
			out[string(id)] = false // no return yet
		}
	}
	for _, r := range rets {
		out[string(r.ID)] = r.Success.V != false && r.Killed == ""
	}
	return out, nil
}

func (j jobs) listJob(ctx context.Context, c *module.Call) (any, error) {
	start, rets, err := j.read(ctx, c)
	if err != nil {
		return nil, err
	}
	jid, _ := salt.ParseJID(c.String("jid"))
	out := map[string]any{"jid": string(jid), "StartTime": startTime(jid)}
	if start != nil {
		for k, v := range start.describe() {
			out[k] = v
		}
		minions := []any{}
		for _, id := range start.Minions {
			minions = append(minions, string(id))
		}
		out["Minions"] = minions
	}
	result := map[string]any{}
	for _, r := range rets {
		one := map[string]any{"return": r.Return.V, "retcode": r.Retcode.V, "success": r.Success.V}
		if r.Killed != "" {
			one["killed"] = r.Killed
		}
		result[string(r.ID)] = one
		if start == nil {
			out["Function"], out["Arguments"] = r.Fun.V, r.FunArgs.V
		}
	}
	out["Result"] = result
	return out, nil
}

func (j jobs) printJob(ctx context.Context, c *module.Call) (any, error) {
	v, err := j.listJob(ctx, c)
	if err != nil {
		return nil, err
	}
	return map[string]any{c.String("jid"): v}, nil
}

func (l *load) describe() map[string]any {
	return map[string]any{
		"Function": l.Fun.V, "Arguments": l.Arg.V, "Target": l.Target.V, "Target-type": l.TargetType, "User": l.User, "StartTime": startTime(l.JID),
	}
}

func (j jobs) listJobs(ctx context.Context, c *module.Call) (any, error) {
	since, err := sinceTime(c.String("since"), time.Now())
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	err = j.Events(ctx, event.JobSubject("", "new"), since, func(e event.Event) error {
		var l load
		if err := json.Unmarshal(e.Data, &l); err != nil {
			return err
		}
		if u := c.String("user"); u != "" && u != l.User {
			return nil
		}
		if f := c.String("fun"); f != "" && !strings.HasPrefix(fmt.Sprint(l.Fun.V), f) {
			return nil
		}
		out[string(l.JID)] = l.describe()
		return nil
	})
	return out, err
}

// sinceTime reads a span such as 2h, or a moment such as 2026-11-21 or
// 2026-11-21T12:00:00, in local time.
func sinceTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("since %q: want a span such as 2h, or a moment such as 2026-11-21T12:00:00", s)
}

// startTime is the moment of a jid in Salt's words.
func startTime(jid salt.JID) string {
	t, err := jid.Time()
	if err != nil {
		return ""
	}
	return t.Format("2006, Jan 02 15:04:05.000000")
}
