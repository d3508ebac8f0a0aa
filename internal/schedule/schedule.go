// Package schedule computes when the jobs of a minion's schedule are due. It gets the time and what
// has happened as arguments; it starts nothing, waits for nothing and stores nothing itself.
package schedule

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Job is one entry of the schedule.
type Job struct {
	Name     string
	Function salt.Function
	Args     []any
	Kwargs   map[string]any

	Every time.Duration // seconds, minutes, hours and days together; 0 for none
	Cron  *Cron
	When  []Moment

	SplayMin, SplayMax time.Duration // random delay after the due time
	Jitter             time.Duration // random time earlier or later
	Range              *Range        // time of day when it may start; nil is always
	Until, After       time.Time     // limits; zero for none
	MaxRunning         int           // how many of it may run at once, at least 1
	RunOnStart         bool          // an interval job also runs at each start
	Enabled            bool
	Returner           []string
	ReturnTag          string
	ReturnJob          bool // the master gets the return
}

// Run is a job that must start now.
type Run struct {
	Job Job
	Due time.Time
}

// Engine tracks the jobs. It is not safe for concurrent use.
type Engine struct {
	enabled bool
	random  func(max time.Duration) time.Duration // from 0 to max
	entries map[string]*entry
	running map[string]int // runs of each job, also of one that was deleted meanwhile
	looked  time.Time      // the time of the latest Due, by the clock alone
}

type entry struct {
	job     Job
	from    time.Time // since when its times count: before that it is not due
	since   time.Time // when its first interval began
	last    time.Time // the last due time that was handled; zero for none
	ahead   Past      // what was known of it at the start, if its time had not come; zero for nothing
	due, at time.Time // the next due time, and when it starts; zero for never
	begun   bool      // it was due since it was added
}

// New returns an engine without jobs. random returns a duration from 0 to its argument.
func New(random func(max time.Duration) time.Duration) *Engine {
	return &Engine{enabled: true, random: random, entries: map[string]*entry{}, running: map[string]int{}}
}

// Set replaces the jobs. past is what Last has returned before, by name, for jobs that are new to the
// engine. An unchanged job keeps its next start. One that is new, or is to run at other times, is due from now
// on only, and after one interval at the earliest, unless it runs at the start, too.
func (e *Engine) Set(s Schedule, past map[string]Past, now time.Time) {
	old := e.entries
	e.enabled, e.entries = s.Enabled, make(map[string]*entry, len(s.Jobs))
	for _, j := range s.Jobs {
		one := &entry{job: j, from: now, since: now}
		if was := old[j.Name]; was == nil {
			one.goOn(past[j.Name], now)
		} else {
			one.begun = was.begun
			if sameRhythm(was.job, j) {
				one.from, one.since, one.last, one.ahead = was.from, was.since, was.last, was.ahead
			}
		}
		e.entries[j.Name] = one
	}
	for name, one := range e.entries {
		was := old[name]
		switch {
		case was != nil && sameTimes(was.job, one.job):
			one.due, one.at = was.due, was.at
		case was != nil && sameRhythm(was.job, one.job) && !was.due.IsZero() && !was.due.After(now):
			one.due = was.due // it waits for its splay, which alone has changed
			e.spread(one)
		default:
			e.plan(one, now)
		}
	}
}

func sameRhythm(a, b Job) bool {
	return a.Every == b.Every && a.Cron.String() == b.Cron.String() && slices.EqualFunc(a.When, b.When, Moment.equal)
}

func sameTimes(a, b Job) bool {
	return sameRhythm(a, b) &&
		a.SplayMin == b.SplayMin && a.SplayMax == b.SplayMax && a.Jitter == b.Jitter && a.RunOnStart == b.RunOnStart
}

// plan computes the next due time after the last one, and when the job starts.
func (e *Engine) plan(one *entry, now time.Time) {
	one.due = e.dueAfter(one, now)
	e.spread(one)
}

// spread computes when a job starts from when it is due.
func (e *Engine) spread(one *entry) {
	one.at = one.due
	if one.due.IsZero() {
		return
	}
	one.at = one.at.Add(one.job.SplayMin + e.random(one.job.SplayMax-one.job.SplayMin))
	if j := one.job.Jitter; j > 0 {
		one.at = one.at.Add(e.random(2*j) - j)
	}
}

// maxLate is how late a job may be, beyond its splay and jitter, that was due at a time of day and is started all
// the same.
const maxLate = time.Minute

// dueAfter returns the first time after the last one at which the job is due. Runs missed while
// nothing ran are not repeated: an interval continues from its last run, at once if it is overdue;
// calendar times continue from the start. Nor are those that the clock has passed over since, because the machine
// slept or the clock was set: one run stands for all of them.
func (e *Engine) dueAfter(one *entry, now time.Time) time.Time {
	// If the clock was set back, the interval starts again: the stored time is in the future, and
	// further away than jitter can explain.
	if one.from.After(now) {
		one.from = now
	}
	if one.since.After(now) {
		one.since = now
	}
	if one.last.Sub(now) > one.job.Jitter {
		one.last = now
	}
	if one.job.Every > 0 {
		return one.interval(now)
	}
	from := one.last
	if from.Before(one.from) {
		from = one.from
	}
	next := one.job.onCalendar(from)
	if !next.IsZero() && now.Sub(next) > one.job.SplayMax+one.job.Jitter+maxLate {
		return one.job.onCalendar(now)
	}
	return next
}

// onCalendar returns the first time after from at which a job is due that has times of day or dates.
func (j Job) onCalendar(from time.Time) (next time.Time) {
	if j.Cron != nil {
		next = j.Cron.Next(from)
	}
	for _, m := range j.When {
		if t := m.Next(from); !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

func (one *entry) interval(now time.Time) time.Time {
	if one.job.RunOnStart && !one.begun {
		return one.from
	}
	last := one.last
	if last.IsZero() {
		last = one.since
	}
	next := last.Add(one.job.Every)
	if late := now.Sub(next); late > one.job.Every {
		return next.Add(late.Truncate(one.job.Every)) // the latest due time in the old rhythm
	}
	return next
}

// handled records that a job that was due is handled, and with it all the intervals that have passed since it was
// to start.
func (one *entry) handled(now time.Time) {
	one.last, one.begun, one.ahead = one.due, true, Past{}
	if every := one.job.Every; every > 0 {
		one.last = one.due.Add(now.Sub(one.at).Truncate(every))
	}
}

// Due returns the jobs to start now, sorted by name, and when to call it again: a zero time is
// never. skipped has the jobs that were due but may not start, with the reason. A returned job
// counts as running until Ended.
func (e *Engine) Due(now time.Time) (runs []Run, skipped map[string]string, next time.Time) {
	skipped = map[string]string{}
	e.setBack(now)
	e.catchUp(now)
	for _, name := range slices.Sorted(maps.Keys(e.entries)) {
		one := e.entries[name]
		if !one.at.IsZero() && !one.at.After(now) {
			if why := e.obstacle(one, now); why != "" {
				skipped[name] = why
			} else {
				e.running[name]++
				runs = append(runs, Run{one.job, one.due})
			}
			one.handled(now)
			e.plan(one, now)
			if !one.at.IsZero() && !one.at.After(now) { // with jitter it may be before the last due time
				one.at = now.Add(time.Millisecond)
			}
		}
		if !one.at.IsZero() && (next.IsZero() || one.at.Before(next)) {
			next = one.at
		}
	}
	return runs, skipped, next
}

// maxStep is how far a clock may be set back without a new plan: then jobs are late by no more than that, and
// none that was due at a time of day is due again.
const maxStep = time.Hour

// setBack plans all times anew if the clock was set back since the latest Due: they are as far away as it
// was ahead.
func (e *Engine) setBack(now time.Time) {
	before, by := e.looked, now.Round(0) // without the monotonic reading, which knows no step
	if e.looked = by; !by.Before(before.Add(-maxStep)) {
		return
	}
	for _, one := range e.entries {
		one.from, one.since = now, now
		if one.last.Round(0).After(by) {
			one.last = now
		}
		e.plan(one, now)
	}
}

// obstacle returns why a due job does not start, "" if it does.
func (e *Engine) obstacle(one *entry, now time.Time) string {
	switch j := one.job; {
	case !e.enabled:
		return "the schedule is disabled"
	case !j.Enabled:
		return "the job is disabled"
	case !j.Until.IsZero() && now.After(j.Until):
		return "its time is over"
	case !j.After.IsZero() && !now.After(j.After):
		return "its time has not come"
	case j.Range != nil && !j.Range.Contains(now):
		return "it is out of its range"
	case e.running[j.Name] >= j.MaxRunning:
		return fmt.Sprintf("%d of it are running", e.running[j.Name])
	}
	return ""
}

// Begin counts a run that was requested independently of the schedule, and returns the job.
func (e *Engine) Begin(name string) (Job, bool) {
	one := e.entries[name]
	if one == nil {
		return Job{}, false
	}
	e.running[name]++
	return one.job, true
}

// Ended records that a run of the job has ended.
func (e *Engine) Ended(name string) {
	if e.running[name]--; e.running[name] <= 0 {
		delete(e.running, name)
	}
}

// Last returns what to pass to Set after a restart, by name. Of an interval that has not ended yet it is the
// beginning: otherwise one that is longer than the minion runs would never end.
func (e *Engine) Last() map[string]Past {
	last := map[string]Past{}
	for name, one := range e.entries {
		switch {
		case !one.ahead.At.IsZero():
			last[name] = one.ahead
		case !one.last.IsZero():
			last[name] = Past{At: one.last}
		case one.job.Every > 0:
			last[name] = Past{At: one.since, Every: one.job.Every}
		}
	}
	return last
}

// Next returns when the job will start next; a zero time is never.
func (e *Engine) Next(name string) time.Time {
	one := e.entries[name]
	if one == nil || !e.enabled || !one.job.Enabled {
		return time.Time{}
	}
	return one.at
}
