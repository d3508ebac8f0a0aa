package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/value"
)

// errNoJob is returned for a job that is not in the journal.
var errNoJob = errors.New("the journal has no job of this id")

// filters are the parameters that select jobs from the journal: those of Salt, and shorter ones.
var filters = []function.Param{
	{Name: "since", Kind: function.String}, {Name: "user", Kind: function.String}, {Name: "fun", Kind: function.String},
	{Name: "search_function"}, {Name: "search_target"}, {Name: "search_metadata", Kind: function.Map},
	{Name: "start_time", Kind: function.String}, {Name: "end_time", Kind: function.String}, {Name: "internal", Kind: function.Bool, Default: false},
}

// jobsModule shows jobs: running and queued ones from the master, and finished ones from the
// journal.
func jobsModule(h *Host) *function.Module {
	j := jobs{h}
	const sample = "20261121113344286549"
	jid := []function.Param{{Name: "jid", Kind: function.String, Required: true}}
	return &function.Module{Name: "jobs", Doc: "Running, waiting and finished jobs, and their returns.", Functions: []function.Function{
		{Name: "active", Class: function.Shared, Own: true, Doc: "Return the unfinished jobs, with their state on each minion.", Example: "salt-run jobs.active", Run: j.active},
		{Name: "cancel", Class: function.Changes, Own: true, Doc: "Withdraw a job from the minions that it was not sent to yet: those that it waits for, and those of a batch whose turn has not come. Return their ids.",
			Example: "salt-run jobs.cancel " + sample, Params: jid, Run: j.cancel},
		{Name: "exit_success", Class: function.Shared, Own: true, Doc: "Return for each minion of a job whether it succeeded.", Example: "salt-run jobs.exit_success " + sample, Params: jid, Run: j.exitSuccess},
		{Name: "follow", Class: function.Shared, Own: true, Doc: "Show the returns of a job, present and future ones, until no more are expected. salt-run shows each as it arrives.",
			Example: "salt-run jobs.follow " + sample, Params: jid, Run: j.follow},
		{Name: "last_run", Class: function.Shared, Own: true, Doc: "Return the latest job that the arguments choose, as print_job does.", Example: "salt-run jobs.last_run\nsalt-run jobs.last_run function=test.ping target='web*'",
			Params: []function.Param{{Name: "function"}, {Name: "target"}, {Name: "metadata", Kind: function.Map}}, Run: j.lastRun},
		{Name: "list_job", Class: function.Shared, Own: true, Doc: "Return what a job ran, its state on each minion, and the return of each.", Example: "salt-run jobs.list_job " + sample, Params: jid, Run: j.listJob},
		{Name: "list_jobs", Class: function.Shared, Own: true, Doc: "Return the jobs of the journal. Jobs that runners started for themselves are left out, unless internal=True.",
			Example: "salt-run jobs.list_jobs\nsalt-run jobs.list_jobs since=2h fun='cmd.*' user=fred\nsalt-run jobs.list_jobs search_target='web*' start_time='2026-11-21 09:00' end_time='2026-11-21 18:00'",
			Params:  filters, Run: j.listJobs},
		{Name: "list_jobs_filter", Class: function.Shared, Own: true, Doc: "Return the latest jobs of the journal, as many as count says.", Example: "salt-run jobs.list_jobs_filter 50",
			Params: []function.Param{{Name: "count", Kind: function.Int, Required: true}, {Name: "filter_find_job", Kind: function.Bool, Default: true}}, Run: j.listLatest},
		{Name: "list_queued", Class: function.Shared, Own: true, Doc: "Return the waiting jobs: for minions that are away, and until when, or for their turn in a batch.", Example: "salt-run jobs.list_queued", Run: j.queued},
		{Name: "lookup_jid", Class: function.Shared, Own: true, Doc: "Return what each minion returned for a job; with missing=True, also those that have not.", Example: "salt-run jobs.lookup_jid " + sample,
			Params: append(slices.Clone(jid), function.Param{Name: "returned", Kind: function.Bool, Default: true}, function.Param{Name: "missing", Kind: function.Bool, Default: false}), Run: j.lookup},
		{Name: "print_job", Class: function.Shared, Own: true, Doc: "Return a job as list_job does, below its id.", Example: "salt-run jobs.print_job " + sample, Params: jid, Run: j.printJob},
	}}
}

type jobs struct{ *Host }

// load is the recorded start of a job.
type load struct{ job.Load }

// ret is the recorded return of one minion.
type ret struct {
	ID      salt.MinionID
	Return  value.Value // a large one is a value.Raw
	Retcode value.Value
	Success value.Value
	Fun     value.Value
	FunArgs value.Value
	Killed  string
}

func (r *ret) succeeded() bool {
	if each, ok := r.Success.V.(map[string]any); ok {
		for _, one := range each {
			if one == false {
				return false
			}
		}
	}
	return r.Success.V != false && r.Killed == ""
}

// state returns the state of the job on the minion that returned.
func (r *ret) state() map[string]any {
	switch {
	case r.Killed != "":
		return map[string]any{"state": string(job.Killed), "text": r.Killed}
	case !r.succeeded():
		return map[string]any{"state": string(job.Failed)}
	}
	return map[string]any{"state": string(job.Done)}
}

// record is everything known of a job.
type record struct {
	jid    salt.JID
	start  *load // nil for a job that a minion ran by itself
	rets   []ret
	states map[string]any // by minion: state, and text if there is one

	returned map[salt.MinionID]bool
}

// read reads the job named by the argument jid.
func (j jobs) read(ctx context.Context, c *function.Call) (*record, error) {
	jid, err := salt.ParseJID(c.String("jid"))
	if err != nil {
		return nil, err
	}
	return j.record(ctx, jid)
}

func (j jobs) record(ctx context.Context, jid salt.JID) (*record, error) {
	r := &record{jid: jid, states: map[string]any{}, returned: map[salt.MinionID]bool{}}
	if err := j.Events(ctx, event.JobSubject(jid, ""), time.Time{}, r.add); err != nil {
		return nil, err
	}
	if r.start == nil && len(r.rets) == 0 {
		return nil, fmt.Errorf("%w: %s", errNoJob, jid)
	}
	for _, live := range j.Runs(ctx, jid) { // the master knows more than is recorded
		for id, s := range live.Standings {
			r.states[string(id)] = s.Data()
		}
	}
	for i := range r.rets {
		r.states[string(r.rets[i].ID)] = r.rets[i].state()
	}
	return r, nil
}

func (r *record) add(e event.Event) error {
	switch parts := strings.SplitN(e.Tag, "/", 5); {
	case len(parts) < 4:
	case parts[3] == "new":
		r.start = &load{}
		return json.Unmarshal(e.Data, r.start)
	case parts[3] == "state":
		var s struct {
			Minions map[string]value.Value `json:"minions"`
		}
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return err
		}
		for id, one := range s.Minions {
			r.states[id] = one.V
		}
	case parts[3] == "ret":
		one, err := readRet(e.Data)
		if err != nil {
			return err
		}
		// Two members of a cluster may have stored it, because one took the other for gone.
		if !r.returned[one.ID] {
			r.returned[one.ID] = true
			r.rets = append(r.rets, one)
		}
	}
	return nil
}

// maxBuilt is the largest return, in bytes, that is decoded. A larger one is passed on as recorded:
// decoding and encoding it would take several times its memory.
const maxBuilt = 64 << 10

func readRet(b []byte) (one ret, err error) {
	rep, err := job.ReadReport(b, func(key string, v []byte) error {
		switch key {
		case "id":
			return value.Text(v, &one.ID)
		case "killed":
			return value.Text(v, &one.Killed)
		case "fun":
			return one.Fun.UnmarshalJSON(v)
		case "fun_args":
			if len(v) > maxBuilt {
				raw, err := value.NewRaw(v)
				one.FunArgs.V = raw
				return err
			}
			return one.FunArgs.UnmarshalJSON(v)
		}
		return nil
	})
	if err != nil {
		return one, err
	}
	long := rep.Return
	if raw, ok := long.V.(value.Raw); ok && len(raw) > maxBuilt {
		rep.Return.V = nil
	} else {
		long.V = nil
	}
	err = rep.DecodeExact()
	one.Return, one.Retcode, one.Success = rep.Return, rep.Retcode, rep.Success
	if long.V != nil {
		one.Return = long
	}
	return one, err
}

func (j jobs) lookup(ctx context.Context, c *function.Call) (any, error) {
	r, err := j.read(ctx, c)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for id, s := range r.states {
		if c.Bool("missing") {
			out[id] = "Minion did not return. [" + describe(s) + "]"
		}
	}
	for i := range r.rets {
		delete(out, string(r.rets[i].ID))
		if c.Bool("returned") {
			out[string(r.rets[i].ID)] = r.rets[i].Return.V
		}
	}
	return out, nil
}

// describe returns a text for a state.
func describe(s any) string {
	m, _ := s.(map[string]any)
	text, _ := m["state"].(string)
	if why, _ := m["text"].(string); why != "" {
		text += ": " + why
	}
	return text
}

func (j jobs) follow(ctx context.Context, c *function.Call) (any, error) {
	jid, err := salt.ParseJID(c.String("jid"))
	if err != nil {
		return nil, err
	}
	if err := j.Await(ctx, jid); err != nil {
		return nil, err
	}
	r, err := j.record(ctx, jid)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for i := range r.rets {
		out[string(r.rets[i].ID)] = r.rets[i].Return.V
	}
	return out, nil
}

func (j jobs) exitSuccess(ctx context.Context, c *function.Call) (any, error) {
	r, err := j.read(ctx, c)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if r.start != nil {
		for _, id := range r.start.Minions {
			out[string(id)] = false // no return yet
		}
	}
	for i := range r.rets {
		out[string(r.rets[i].ID)] = r.rets[i].succeeded()
	}
	return out, nil
}

func (j jobs) listJob(ctx context.Context, c *function.Call) (any, error) {
	r, err := j.read(ctx, c)
	if err != nil {
		return nil, err
	}
	return r.whole(), nil
}

// whole returns everything about a job as Salt shows it, and the states too.
func (r *record) whole() map[string]any {
	out := map[string]any{"jid": string(r.jid), "StartTime": startTime(r.jid)}
	if r.start != nil {
		for k, v := range r.start.describe() {
			out[k] = v
		}
		minions := []any{}
		for _, id := range r.start.Minions {
			minions = append(minions, string(id))
		}
		out["Minions"] = minions
	}
	result := map[string]any{}
	for _, one := range r.rets {
		entry := map[string]any{"return": one.Return.V, "retcode": one.Retcode.V, "success": one.Success.V}
		if one.Killed != "" {
			entry["killed"] = one.Killed
		}
		result[string(one.ID)] = entry
		if r.start == nil {
			out["Function"], out["Arguments"] = one.Fun.V, one.FunArgs.V
		}
	}
	out["Result"], out["States"] = result, r.states
	return out
}

func (j jobs) printJob(ctx context.Context, c *function.Call) (any, error) {
	r, err := j.read(ctx, c)
	if err != nil {
		return nil, err
	}
	return map[string]any{string(r.jid): r.whole()}, nil
}

func (l *load) describe() map[string]any {
	out := map[string]any{
		"Function": l.Fun.V, "Arguments": l.Arg.V, "Target": l.Target.V, "Target-type": l.TargetType, "User": l.User, "StartTime": startTime(l.JID),
	}
	if l.Metadata.V != nil {
		out["Metadata"] = l.Metadata.V
	}
	return out
}

// chosen selects jobs; a zero field selects all.
type chosen struct {
	since, until time.Time
	user         string
	functions    []string // shell patterns
	targets      []string // likewise
	metadata     map[string]any
	internal     bool
}

// readChosen reads the filters of list_jobs.
func readChosen(c *function.Call, now time.Time) (chosen, error) {
	f := chosen{user: c.String("user"), metadata: c.Map("search_metadata"), internal: c.Bool("internal")}
	f.functions = append(patterns(c.Any("search_function")), patterns(c.Any("fun"))...)
	f.targets = patterns(c.Any("search_target"))
	for _, m := range []struct {
		name string
		to   *time.Time
	}{{"since", &f.since}, {"start_time", &f.since}, {"end_time", &f.until}} {
		if c.String(m.name) == "" {
			continue
		}
		t, err := parseMoment(m.name, c.String(m.name), now)
		if err != nil {
			return f, err
		}
		*m.to = t
	}
	return f, nil
}

// patterns reads a comma-separated text, or a list.
func patterns(v any) (list []string) {
	switch x := v.(type) {
	case string:
		return strings.Split(x, ",")
	case []any:
		for _, one := range x {
			list = append(list, fmt.Sprint(one))
		}
	}
	return list
}

// takes reports whether the job is selected.
func (f *chosen) takes(l *load) bool {
	started, err := l.JID.Time()
	return (f.internal || !l.Internal) && (f.user == "" || f.user == l.User) &&
		err == nil && (f.until.IsZero() || !started.After(f.until)) &&
		matches(f.functions, l.Fun.V) && matches(f.targets, l.target()) && f.hasMetadata(l.Metadata.V)
}

// matches reports whether one of the patterns matches the text, or one of several texts. No
// patterns match everything. A prefix of a function name matches too.
func matches(patterns []string, v any) bool {
	if len(patterns) == 0 {
		return true
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	return slices.ContainsFunc(list, func(one any) bool {
		text := fmt.Sprint(one)
		return slices.ContainsFunc(patterns, func(p string) bool {
			return fnmatch.Match(p, text) || strings.HasPrefix(text, p+".")
		})
	})
}

// target returns the expression, or the ids of a list.
func (l *load) target() any {
	text, ok := l.Target.V.(string)
	if !ok || l.TargetType != "list" {
		return l.Target.V
	}
	list := []any{}
	for id := range strings.SplitSeq(text, ",") {
		list = append(list, id)
	}
	return list
}

func (f *chosen) hasMetadata(v any) bool {
	have, _ := v.(map[string]any)
	for key, want := range f.metadata {
		if !reflect.DeepEqual(have[key], want) {
			return false
		}
	}
	return true
}

// find returns the selected jobs, oldest first.
func (j jobs) find(ctx context.Context, f chosen) (list []load, err error) {
	err = j.Events(ctx, event.JobSubject("", "new"), f.since, func(e event.Event) error {
		var l load
		if err := json.Unmarshal(e.Data, &l); err != nil {
			return err
		}
		if f.takes(&l) {
			list = append(list, l)
		}
		return nil
	})
	return list, err
}

func (j jobs) listJobs(ctx context.Context, c *function.Call) (any, error) {
	f, err := readChosen(c, time.Now())
	if err != nil {
		return nil, err
	}
	list, err := j.find(ctx, f)
	return described(list), err
}

func described(list []load) map[string]any {
	out := map[string]any{}
	for i := range list {
		out[string(list[i].JID)] = list[i].describe()
	}
	return out
}

func (j jobs) listLatest(ctx context.Context, c *function.Call) (any, error) {
	list, err := j.find(ctx, chosen{internal: !c.Bool("filter_find_job")})
	return described(list[max(len(list)-max(c.Int("count"), 0), 0):]), err
}

func (j jobs) lastRun(ctx context.Context, c *function.Call) (any, error) {
	list, err := j.find(ctx, chosen{functions: patterns(c.Any("function")), targets: patterns(c.Any("target")), metadata: c.Map("metadata")})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("the journal has no such job")
	}
	r, err := j.record(ctx, list[len(list)-1].JID)
	if err != nil {
		return nil, err
	}
	return map[string]any{string(r.jid): r.whole()}, nil
}

// summary returns a job as active and list_queued show it.
func summary(c *job.Summary) map[string]any {
	return map[string]any{
		"Function": c.Fun, "Arguments": c.Args, "Target": c.Target, "Target-type": c.TargetType, "User": c.User, "StartTime": startTime(c.JID),
	}
}

// active shows the progress of jobs. Running and Returned are Salt's keys; they have states instead
// of process ids, which jobs do not have here.
func (j jobs) active(ctx context.Context, _ *function.Call) (any, error) {
	out := map[string]any{}
	for _, c := range j.Runs(ctx, "") {
		running, returned, waiting := []any{}, []any{}, []any{}
		for _, id := range sorted(c.Standings) {
			switch s := c.Standings[id]; {
			case s.State.Returned():
				returned = append(returned, string(id))
			case s.State == job.Queued:
				waiting = append(waiting, string(id))
			case !s.State.Final():
				running = append(running, map[string]any{string(id): s.Data()["state"]})
			}
		}
		if c.Internal || len(running)+len(waiting) == 0 {
			continue
		}
		one := summary(&c)
		one["Running"], one["Returned"] = running, returned
		if len(waiting) > 0 {
			one["Queued"] = waiting
		}
		out[string(c.JID)] = one
	}
	return out, nil
}

func sorted(m map[salt.MinionID]job.Standing) []salt.MinionID {
	ids := make([]salt.MinionID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (j jobs) queued(ctx context.Context, _ *function.Call) (any, error) {
	out := map[string]any{}
	for _, c := range j.Runs(ctx, "") {
		waiting := map[string]any{}
		for id, s := range c.Standings {
			if s.State == job.Queued {
				waiting[string(id)] = describe(s.Data())
			}
		}
		if len(waiting) == 0 {
			continue
		}
		one := summary(&c)
		one["Minions"] = waiting
		if !c.Until.IsZero() {
			one["Until"] = c.Until.UTC().Format(time.RFC3339)
		}
		out[string(c.JID)] = one
	}
	return out, nil
}

func (j jobs) cancel(ctx context.Context, c *function.Call) (any, error) {
	jid, err := salt.ParseJID(c.String("jid"))
	if err != nil {
		return nil, err
	}
	ids, err := j.Cancel(ctx, jid)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out, nil
}

// parseMoment parses a duration such as 2h, or a local time such as 2026-11-21 or
// 2026-11-21T12:00:00.
func parseMoment(name, s string, now time.Time) (time.Time, error) {
	if d, err := salt.ParseDuration(s, time.Second); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02", "2006, Jan 02 15:04:05.000000", "2006, Jan 02 15:04", "2006, Jan 02",
	} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s %q: want a span such as 2h, or a moment such as 2026-11-21T12:00:00", name, s)
}

// startTime returns the time of a jid in Salt's format.
func startTime(jid salt.JID) string {
	t, err := jid.Time()
	if err != nil {
		return ""
	}
	return t.Format("2006, Jan 02 15:04:05.000000")
}
