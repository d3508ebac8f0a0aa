package schedule

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Schedule is the parsed setting schedule.
type Schedule struct {
	Enabled bool  // the whole schedule
	Jobs    []Job // sorted by name
}

// Parse parses the setting schedule as plain data: a dictionary of jobs by name, and optionally
// enabled. Times without a zone are in loc. nil is an empty schedule.
func Parse(v any, loc *time.Location) (Schedule, error) {
	s := Schedule{Enabled: true}
	if v == nil {
		return s, nil
	}
	dict, ok := v.(map[string]any)
	if !ok {
		return s, errors.New("it is not a dictionary of jobs")
	}
	for _, name := range slices.Sorted(maps.Keys(dict)) {
		if on, isBool := dict[name].(bool); name == "enabled" && isBool {
			s.Enabled = on
			continue
		}
		j, err := ParseJob(name, dict[name], loc)
		if err != nil {
			return Schedule{Enabled: true}, err
		}
		s.Jobs = append(s.Jobs, j)
	}
	return s, nil
}

// reader reads the keys of one job and keeps the first error.
type reader struct {
	job  map[string]any
	used map[string]bool
	loc  *time.Location
	err  error
}

// beside are keys that Salt knows but that have no effect here.
var beside = []string{"jid_include", "metadata", "name", "persist", "return_config", "return_kwargs"}

// ParseJob reads one job.
func ParseJob(name string, v any, loc *time.Location) (Job, error) {
	dict, ok := v.(map[string]any)
	if !ok {
		return Job{}, fmt.Errorf("job %s: it is not a dictionary", name)
	}
	r := &reader{job: dict, used: map[string]bool{}, loc: loc}
	j := Job{Name: name}
	r.what(&j)
	r.times(&j)
	r.bounds(&j)
	r.unknown()
	if r.err != nil {
		return Job{}, fmt.Errorf("job %s: %w", name, r.err)
	}
	return j, nil
}

func (r *reader) fail(key, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(key+": "+format, args...)
	}
}

func (r *reader) get(key string) any {
	r.used[key] = true
	return r.job[key]
}

// what reads what the job runs, and where its return goes.
func (r *reader) what(j *Job) {
	f, err := salt.ParseFunction(r.text("function"))
	if err != nil {
		r.fail("function", "%w", err)
	}
	j.Function = f
	for _, key := range []string{"args", "job_args"} {
		switch v := r.get(key).(type) {
		case nil:
		case []any:
			j.Args = v
		default:
			j.Args = []any{v}
		}
	}
	for _, key := range []string{"kwargs", "job_kwargs"} {
		switch v := r.get(key).(type) {
		case nil:
		case map[string]any:
			j.Kwargs = v
		default:
			r.fail(key, "it is not a dictionary")
		}
	}
	j.Returner, j.ReturnTag = r.words("returner"), r.text("tag")
	j.ReturnJob = r.flag("return_job", true)
	j.Enabled = r.flag("enabled", true)
	j.MaxRunning = 1
	if n := r.number("maxrunning"); n >= 1 {
		j.MaxRunning = int(min(n, math.MaxInt32))
	} else if n != 0 {
		r.fail("maxrunning", "it is a number from 1 on")
	}
}

// times reads when the job is due.
func (r *reader) times(j *Job) {
	for key, unit := range map[string]time.Duration{"seconds": time.Second, "minutes": time.Minute, "hours": time.Hour, "days": 24 * time.Hour} {
		j.Every += r.span(key, unit)
	}
	j.RunOnStart = r.flag("run_on_start", false)
	if text := r.text("cron"); text != "" {
		var err error
		if j.Cron, err = ParseCron(text); err != nil {
			r.fail("cron", "%w", err)
		}
	}
	for _, key := range []string{"when", "once"} {
		for _, text := range r.words(key) {
			m, err := ParseMoment(text, r.loc)
			if err != nil {
				r.fail(key, "%w", err)
			}
			j.When = append(j.When, m)
		}
	}
	kinds := 0
	for _, has := range []bool{j.Every > 0, j.Cron != nil, len(j.When) > 0} {
		if has {
			kinds++
		}
	}
	if kinds != 1 && r.err == nil {
		r.err = errors.New("it needs exactly one of these: seconds, minutes, hours and days; cron; when; once")
	}
}

// bounds reads what delays or prevents a start.
func (r *reader) bounds(j *Job) {
	j.Jitter = r.span("jitter", time.Second)
	switch v := r.get("splay").(type) {
	case nil:
	case map[string]any:
		inner := &reader{job: v, used: map[string]bool{}, loc: r.loc}
		j.SplayMin, j.SplayMax = inner.span("start", time.Second), inner.span("end", time.Second)
		if inner.unknown(); inner.err != nil || j.SplayMax < j.SplayMin {
			r.fail("splay", "it is a number of seconds, or has start and end, the end not before the start")
		}
	default:
		j.SplayMax = r.span("splay", time.Second)
	}
	j.Until, j.After = r.date("until"), r.date("after")
	if v := r.get("range"); v != nil {
		j.Range = r.dayRange(v)
	}
}

func (r *reader) dayRange(v any) *Range {
	dict, ok := v.(map[string]any)
	if !ok {
		r.fail("range", "it is not a dictionary with start and end")
		return nil
	}
	inner := &reader{job: dict, used: map[string]bool{}, loc: r.loc}
	start, err := ParseMoment(inner.text("start"), r.loc)
	end, errEnd := ParseMoment(inner.text("end"), r.loc)
	got := &Range{start, end, inner.flag("invert", false)}
	inner.unknown()
	switch {
	case errors.Join(err, errEnd, inner.err) != nil:
		r.fail("range", "%w", errors.Join(err, errEnd, inner.err))
	case start.week || end.week || start.date.IsZero() != end.date.IsZero():
		r.fail("range", "start and end are two times of the day, or two dates")
	}
	return got
}

func (r *reader) text(key string) string {
	switch v := r.get(key).(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		r.fail(key, "it is not text")
		return ""
	}
}

// words reads a text or a list of texts.
func (r *reader) words(key string) []string {
	switch v := r.get(key).(type) {
	case nil:
		return nil
	case string:
		return []string{v}
	case []any:
		words := make([]string, len(v))
		for i, one := range v {
			var ok bool
			if words[i], ok = one.(string); !ok {
				r.fail(key, "%v is not text", one)
			}
		}
		return words
	}
	r.fail(key, "it is neither text nor a list of texts")
	return nil
}

func (r *reader) flag(key string, byDefault bool) bool {
	switch v := r.get(key).(type) {
	case nil:
		return byDefault
	case bool:
		return v
	}
	r.fail(key, "it is true or false")
	return byDefault
}

func (r *reader) number(key string) float64 {
	switch v := r.get(key).(type) {
	case nil:
		return 0
	case int64:
		return float64(v)
	case float64:
		return v
	}
	r.fail(key, "it is not a number")
	return 0
}

// longest is the maximum duration in a schedule.
const longest = 100 * 365 * 24 * time.Hour

// span reads a number of units.
func (r *reader) span(key string, unit time.Duration) time.Duration {
	n := r.number(key) * float64(unit)
	if n < 0 || n > float64(longest) || math.IsNaN(n) {
		r.fail(key, "it is a number from 0 to 100 years")
		return 0
	}
	return time.Duration(n)
}

// date reads a date with a time.
func (r *reader) date(key string) time.Time {
	text := r.text(key)
	if text == "" {
		return time.Time{}
	}
	m, err := ParseMoment(text, r.loc)
	if err != nil || m.date.IsZero() {
		r.fail(key, "%q is not a date with a time, as in 2026-12-31 23:59", text)
	}
	return m.date
}

// unknown refuses keys that were not read: a typo would change when a job runs.
func (r *reader) unknown() {
	for _, key := range slices.Sorted(maps.Keys(r.job)) {
		if !r.used[key] && !slices.Contains(beside, key) && !strings.HasPrefix(key, "_") {
			r.fail(key, "there is no such key")
		}
	}
}
