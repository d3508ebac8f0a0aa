package schedule

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

// at is a moment of the days around Saturday 2026-11-21, UTC.
func at(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		panic(err)
	}
	return t
}

func show(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("2006-01-02 15:04:05")
}

func TestCron(t *testing.T) {
	for _, row := range []struct{ cron, after, want string }{
		{"* * * * *", "2026-11-21 10:00:00", "2026-11-21 10:01:00"},
		{"* * * * *", "2026-11-21 10:00:59", "2026-11-21 10:01:00"},
		{"*/15 * * * *", "2026-11-21 10:46:00", "2026-11-21 11:00:00"},
		{"5/20 * * * *", "2026-11-21 10:05:00", "2026-11-21 10:25:00"},
		{"0 9-17 * * mon-fri", "2026-11-21 10:00:00", "2026-11-23 09:00:00"},
		{"30 2 1 * *", "2026-11-21 10:00:00", "2026-12-01 02:30:00"},
		{"0 0 31 * *", "2026-11-21 10:00:00", "2026-12-31 00:00:00"},
		{"0 0 29 feb *", "2026-11-21 10:00:00", "2028-02-29 00:00:00"},
		{"0 0 13 * fri", "2026-11-21 10:00:00", "2026-11-27 00:00:00"}, // either
		{"0 0 13 * *", "2026-11-21 10:00:00", "2026-12-13 00:00:00"},
		{"0 0 * * 7", "2026-11-21 10:00:00", "2026-11-22 00:00:00"},
		{"1,3,5 4 * * *", "2026-11-21 04:03:00", "2026-11-21 04:05:00"},
		{"59 23 31 12 *", "2026-12-31 23:59:00", "2027-12-31 23:59:00"},
		{"@hourly", "2026-11-21 10:00:00", "2026-11-21 11:00:00"},
		{"@weekly", "2026-11-21 10:00:00", "2026-11-22 00:00:00"},
	} {
		c, err := ParseCron(row.cron)
		if err != nil {
			t.Errorf("%s: %v", row.cron, err)
		} else if got := show(c.Next(at(row.after))); got != row.want {
			t.Errorf("%s after %s: %s, want %s", row.cron, row.after, got, row.want)
		}
	}
	for _, bad := range []string{"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "x * * * *",
		"5-1 * * * *", "*/0 * * * *", "*/x * * * *", "1,,2 * * * *", "-1 * * * *", "0 0 30 2 *", "@never", "0 0 * foo *"} {
		if _, err := ParseCron(bad); err == nil {
			t.Errorf("%q is taken for a line of cron", bad)
		}
	}
}

// Over a change of the clock every hour of the wall that is there is met.
func TestCronOverAChangeOfTheClock(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	c, _ := ParseCron("30 * * * *")
	var hours []string
	for at := time.Date(2026, 3, 28, 23, 45, 0, 0, berlin); len(hours) < 4; {
		at = c.Next(at)
		hours = append(hours, at.Format("15:04"))
	}
	if got := strings.Join(hours, " "); got != "00:30 01:30 03:30 04:30" {
		t.Errorf("in spring: %s", got)
	}
}

// TestDayWithoutMidnight: in some zones the clock changes at midnight, which that day does not have.
func TestDayWithoutMidnight(t *testing.T) {
	const minute = "2006-01-02 15:04"
	next := func(spec string, from time.Time) (at time.Time) {
		if m, err := ParseMoment(spec, from.Location()); err == nil {
			return m.Next(from)
		}
		c, err := ParseCron(spec)
		if err != nil {
			t.Fatal(err)
		}
		deadline.Call(t, func() { at = c.Next(from) }, spec)
		return at
	}
	for _, row := range []struct{ zone, spec, after, want string }{
		{"America/Santiago", "0 12 * * 0", "2026-08-30 12:01", "2026-09-06 12:00"},
		{"America/Santiago", "0 0 * * *", "2026-09-05 00:00", "2026-09-07 00:00"},
		{"Atlantic/Azores", "0 9 * * 1", "2026-03-23 09:00", "2026-03-30 09:00"},
		{"America/Havana", "0 7 10 * *", "2026-02-10 07:00", "2026-03-10 07:00"},
		{"America/Asuncion", "0 5 1 10 *", "2017-09-30 12:00", "2017-10-01 05:00"}, // also the first of a month
		{"Asia/Beirut", "0 5 * * 0", "2026-03-22 05:00", "2026-03-29 05:00"},
		{"Pacific/Apia", "0 5 * * 6", "2011-12-24 05:00", "2011-12-31 05:00"}, // there was no 30th
		{"America/Santiago", "Sunday 00:00", "2026-09-05 12:00", "2026-09-06 01:00"},
		{"America/Santiago", "00:30", "2026-09-05 12:00", "2026-09-06 01:00"},
		{"America/Santiago", "00:30", "2026-09-06 01:00", "2026-09-07 00:30"},
		{"Asia/Beirut", "Sunday 00:00", "2026-03-28 12:00", "2026-03-29 01:00"},
	} {
		zone, err := time.LoadLocation(row.zone)
		if err != nil {
			t.Skip(err)
		}
		after, err := time.ParseInLocation(minute, row.after, zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := next(row.spec, after).Format(minute); got != row.want {
			t.Errorf("%s: %q after %s: %s, want %s", row.zone, row.spec, row.after, got, row.want)
		}
	}
}

func TestMoment(t *testing.T) {
	const now = "2026-11-21 10:00:00" // a Saturday
	for _, row := range []struct{ text, want string }{
		{"17:00", "2026-11-21 17:00:00"}, {"5:00pm", "2026-11-21 17:00:00"}, {"5:00 PM", "2026-11-21 17:00:00"}, {"5pm", "2026-11-21 17:00:00"},
		{"9:30", "2026-11-22 09:30:00"}, {"10:00", "2026-11-22 10:00:00"}, {"12:00am", "2026-11-22 00:00:00"}, {"07:08:09", "2026-11-22 07:08:09"},
		{"Monday 5:00pm", "2026-11-23 17:00:00"}, {"sat 9:00", "2026-11-28 09:00:00"}, {"Saturday, 11:00", "2026-11-21 11:00:00"},
		{"2026-11-21 17:00", "2026-11-21 17:00:00"}, {"2026-11-21T17:00:00", "2026-11-21 17:00:00"}, {"12/31/2026 11:59pm", "2026-12-31 23:59:00"},
		{"2026-12-24", "2026-12-24 00:00:00"}, {"January 2, 2027 3:04 PM", "2027-01-02 15:04:00"}, {"2026-11-21T17:00:00+01:00", "2026-11-21 16:00:00"},
		{"2026-11-21 10:00", "never"}, {"2020-01-01 00:00", "never"},
	} {
		m, err := ParseMoment(row.text, time.UTC)
		if err != nil {
			t.Errorf("%q: %v", row.text, err)
		} else if got := show(m.Next(at(now)).UTC()); got != row.want && !(row.want == "never" && m.Next(at(now)).IsZero()) {
			t.Errorf("%q after %s: %s, want %s", row.text, now, got, row.want)
		}
	}
	for _, bad := range []string{"", "now", "25:00", "13:00pm", "Someday 5:00", "2026-13-01", "5", "17:00 Monday"} {
		if m, err := ParseMoment(bad, time.UTC); err == nil {
			t.Errorf("%q is taken for %+v", bad, m)
		}
	}
}

func TestRange(t *testing.T) {
	for _, row := range []struct {
		start, end string
		invert     bool
		at         string
		want       bool
	}{
		{"8:00am", "5:00pm", false, "2026-11-21 10:00:00", true}, {"8:00am", "5:00pm", false, "2026-11-21 17:00:01", false},
		{"8:00am", "5:00pm", true, "2026-11-21 10:00:00", false}, {"8:00am", "5:00pm", true, "2026-11-21 18:00:00", true},
		{"22:00", "6:00", false, "2026-11-21 23:00:00", true}, {"22:00", "6:00", false, "2026-11-21 03:00:00", true}, {"22:00", "6:00", false, "2026-11-21 12:00:00", false},
		{"2026-11-20 00:00", "2026-11-22 00:00", false, "2026-11-21 12:00:00", true}, {"2026-11-20 00:00", "2026-11-21 00:00", false, "2026-11-21 12:00:00", false},
	} {
		j, err := ParseJob("j", map[string]any{"function": "test.ping", "seconds": int64(1), "range": map[string]any{"start": row.start, "end": row.end, "invert": row.invert}}, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		if got := j.Range.Contains(at(row.at)); got != row.want {
			t.Errorf("%s to %s (invert %v) at %s: %v", row.start, row.end, row.invert, row.at, got)
		}
	}
}

// job reads a job whose keys stand as key=value, numbers as numbers.
func job(t *testing.T, name string, extra map[string]any) Job {
	t.Helper()
	dict := map[string]any{"function": "test.ping"}
	for k, v := range extra {
		dict[k] = v
	}
	j, err := ParseJob(name, dict, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// follow runs an engine from start on until end, at the moments that it asks for,
// and returns when which job started. Each ends at once.
func follow(t *testing.T, e *Engine, now, end time.Time) (starts []string) {
	t.Helper()
	for steps := 0; !now.After(end); steps++ {
		if steps > 10_000 {
			t.Fatal("the engine does not get on")
		}
		runs, _, next := e.Due(now)
		for _, r := range runs {
			starts = append(starts, fmt.Sprintf("%s %s", r.Job.Name, now.Format("15:04:05")))
			e.Ended(r.Job.Name)
		}
		if next.IsZero() {
			return starts
		}
		if !next.After(now) {
			t.Fatalf("asked at %s to be asked again at %s", now, next)
		}
		now = next
	}
	return starts
}

func none(time.Duration) time.Duration { return 0 }

func most(max time.Duration) time.Duration { return max }

func TestEngine(t *testing.T) {
	const start = "2026-11-21 10:00:00"
	for name, row := range map[string]struct {
		jobs   map[string]map[string]any
		random func(time.Duration) time.Duration
		last   map[string]Past
		until  string
		want   string
	}{
		"interval":               {map[string]map[string]any{"a": {"minutes": int64(1)}}, none, nil, "2026-11-21 10:03:30", "a 10:01:00,a 10:02:00,a 10:03:00"},
		"run on start":           {map[string]map[string]any{"a": {"minutes": int64(1), "run_on_start": true}}, none, nil, "2026-11-21 10:01:30", "a 10:00:00,a 10:01:00"},
		"units add up":           {map[string]map[string]any{"a": {"minutes": int64(1), "seconds": 30.5}}, none, nil, "2026-11-21 10:02:00", "a 10:01:30"},
		"two":                    {map[string]map[string]any{"a": {"minutes": int64(2)}, "b": {"minutes": int64(1)}}, none, nil, "2026-11-21 10:02:00", "b 10:01:00,a 10:02:00,b 10:02:00"},
		"cron":                   {map[string]map[string]any{"a": {"cron": "*/10 * * * *"}}, none, nil, "2026-11-21 10:25:00", "a 10:10:00,a 10:20:00"},
		"when":                   {map[string]map[string]any{"a": {"when": []any{"10:30", "Saturday 10:10"}}}, none, nil, "2026-11-21 11:00:00", "a 10:10:00,a 10:30:00"},
		"once":                   {map[string]map[string]any{"a": {"once": "2026-11-21T10:05:00"}}, none, nil, "2026-11-22 11:00:00", "a 10:05:00"},
		"splay":                  {map[string]map[string]any{"a": {"minutes": int64(1), "splay": int64(10)}}, most, nil, "2026-11-21 10:02:30", "a 10:01:10,a 10:02:10"},
		"splay with a start":     {map[string]map[string]any{"a": {"minutes": int64(1), "splay": map[string]any{"start": int64(5), "end": int64(9)}}}, none, nil, "2026-11-21 10:01:30", "a 10:01:05"},
		"jitter later":           {map[string]map[string]any{"a": {"minutes": int64(1), "jitter": int64(10)}}, most, nil, "2026-11-21 10:02:30", "a 10:01:10,a 10:02:10"},
		"jitter earlier":         {map[string]map[string]any{"a": {"minutes": int64(1), "jitter": int64(10)}}, none, nil, "2026-11-21 10:02:30", "a 10:00:50,a 10:01:50"},
		"disabled":               {map[string]map[string]any{"a": {"minutes": int64(1), "enabled": false}}, none, nil, "2026-11-21 10:05:00", ""},
		"range":                  {map[string]map[string]any{"a": {"minutes": int64(1), "range": map[string]any{"start": "10:02", "end": "10:03"}}}, none, nil, "2026-11-21 10:05:00", "a 10:02:00,a 10:03:00"},
		"until":                  {map[string]map[string]any{"a": {"minutes": int64(1), "until": "2026-11-21 10:02"}}, none, nil, "2026-11-21 10:05:00", "a 10:01:00,a 10:02:00"},
		"after":                  {map[string]map[string]any{"a": {"minutes": int64(1), "after": "2026-11-21 10:02"}}, none, nil, "2026-11-21 10:04:30", "a 10:03:00,a 10:04:00"},
		"goes on over a restart": {map[string]map[string]any{"a": {"minutes": int64(10)}}, none, map[string]Past{"a": {At: at("2026-11-21 09:55:00")}}, "2026-11-21 10:20:00", "a 10:05:00,a 10:15:00"},
		"overdue at the start":   {map[string]map[string]any{"a": {"minutes": int64(10)}}, none, map[string]Past{"a": {At: at("2026-11-21 08:03:00")}}, "2026-11-21 10:14:00", "a 10:00:00,a 10:03:00,a 10:13:00"},
		"on start, each time":    {map[string]map[string]any{"a": {"minutes": int64(10), "run_on_start": true}}, none, map[string]Past{"a": {At: at("2026-11-21 09:55:00")}}, "2026-11-21 10:16:00", "a 10:00:00,a 10:10:00"},
		"a calendar's past is past, and its due time is not met again": {map[string]map[string]any{"a": {"cron": "0 10 * * *"}, "b": {"when": "9:00"}}, none, map[string]Past{"a": {At: at("2026-11-21 10:00:00")}}, "2026-11-21 12:00:00", ""},
		"the clock was set back": {map[string]map[string]any{"a": {"minutes": int64(10)}}, none, map[string]Past{"a": {At: at("2027-01-01 00:00:00")}}, "2026-11-21 10:25:00", "a 10:10:00,a 10:20:00"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Schedule{Enabled: true}
			for name, extra := range row.jobs {
				s.Jobs = append(s.Jobs, job(t, name, extra))
			}
			e := New(row.random)
			e.Set(s, row.last, at(start))
			if got := strings.Join(follow(t, e, at(start), at(row.until)), ","); got != row.want {
				t.Errorf("started %s, want %s", got, row.want)
			}
		})
	}
}

func TestMaxRunning(t *testing.T) {
	now := at("2026-11-21 10:00:00")
	e := New(none)
	e.Set(Schedule{Enabled: true, Jobs: []Job{job(t, "a", map[string]any{"seconds": int64(1)}), job(t, "b", map[string]any{"seconds": int64(1), "maxrunning": int64(2)})}}, nil, now)
	count := map[string]int{}
	step := func() (skipped map[string]string) {
		now = now.Add(time.Second)
		var runs []Run
		runs, skipped, _ = e.Due(now)
		for _, r := range runs {
			count[r.Job.Name]++
		}
		return skipped
	}
	step()
	if skipped := step(); skipped["a"] == "" || skipped["b"] != "" {
		t.Errorf("second time: skipped %v, want a alone", skipped)
	}
	if skipped := step(); skipped["b"] == "" {
		t.Errorf("third time: skipped %v, want b too", skipped)
	}
	e.Ended("a")
	step()
	if count["a"] != 2 || count["b"] != 2 {
		t.Errorf("started %v", count)
	}
}

// TestAJobThatIsAddedAgainWhileItRuns: what was started before it was deleted counts.
func TestAJobThatIsAddedAgainWhileItRuns(t *testing.T) {
	now := at("2026-11-21 10:00:00")
	e := New(none)
	all := Schedule{Enabled: true, Jobs: []Job{job(t, "a", map[string]any{"seconds": int64(1)})}}
	step := func() (runs []Run) {
		now = now.Add(time.Second)
		runs, _, _ = e.Due(now)
		return runs
	}
	e.Set(all, nil, now)
	if len(step()) != 1 {
		t.Fatal("it was not started")
	}
	e.Set(Schedule{Enabled: true}, nil, now)
	e.Set(all, nil, now)
	if runs := step(); len(runs) != 0 {
		t.Errorf("started while it runs: %v", runs)
	}
	e.Ended("a")
	if len(step()) != 1 || len(step()) != 0 {
		t.Error("after its end it does not run once")
	}
}

// A change of one job leaves the next start of the others where it was.
func TestSetKeepsTimes(t *testing.T) {
	now := at("2026-11-21 10:00:00")
	e := New(none)
	a, b := job(t, "a", map[string]any{"minutes": int64(10)}), job(t, "b", map[string]any{"minutes": int64(10)})
	e.Set(Schedule{Enabled: true, Jobs: []Job{a, b}}, nil, now)
	b.Every = time.Minute
	e.Set(Schedule{Enabled: true, Jobs: []Job{a, b}}, nil, now.Add(5*time.Minute))
	if got := show(e.Next("a")); got != "2026-11-21 10:10:00" {
		t.Errorf("a starts %s", got)
	}
	if got := show(e.Next("b")); got != "2026-11-21 10:06:00" {
		t.Errorf("b starts %s", got)
	}
	e.Set(Schedule{Enabled: false, Jobs: []Job{a}}, nil, now)
	if got := show(e.Next("a")); got != "never" {
		t.Errorf("a of a disabled schedule starts %s", got)
	}
	if runs, skipped, _ := e.Due(now.Add(time.Hour)); len(runs) != 0 || skipped["a"] == "" {
		t.Errorf("a disabled schedule starts %v, skips %v", runs, skipped)
	}
}

// TestSetKeepsWhatWaitsForItsSplay: a job that was due is not lost when the schedule is set before its start.
func TestSetKeepsWhatWaitsForItsSplay(t *testing.T) {
	once := func() Job {
		return job(t, "a", map[string]any{"once": "2026-11-21T15:30:00+05:30", "splay": int64(600)}) // 10:00 UTC
	}
	e := New(most)
	e.Set(Schedule{Enabled: true, Jobs: []Job{once()}}, nil, at("2026-11-21 09:00:00"))
	e.Set(Schedule{Enabled: true, Jobs: []Job{once(), job(t, "b", map[string]any{"cron": "0 0 1 1 *"})}}, nil, at("2026-11-21 10:02:00"))
	if got := strings.Join(follow(t, e, at("2026-11-21 10:02:00"), at("2026-11-21 12:00:00")), ","); got != "a 15:40:00" {
		t.Errorf("a date with an offset: started %q", got)
	}

	for name, row := range map[string]struct {
		splay map[string]any
		want  string
	}{
		"without a splay":      {nil, "a 12:20:00,a 13:00:00"},
		"with a shorter splay": {map[string]any{"splay": int64(60)}, "a 12:20:00,a 13:01:00"},
		"with another splay":   {map[string]any{"splay": int64(1500)}, "a 12:25:00"},
	} {
		hourly := map[string]any{"cron": "0 * * * *", "splay": int64(3599)}
		e := New(most)
		e.Set(Schedule{Enabled: true, Jobs: []Job{job(t, "a", hourly)}}, nil, at("2026-11-21 11:30:00"))
		delete(hourly, "splay")
		for k, v := range row.splay {
			hourly[k] = v
		}
		now := at("2026-11-21 12:20:00")
		e.Set(Schedule{Enabled: true, Jobs: []Job{job(t, "a", hourly)}}, nil, now)
		if got := strings.Join(follow(t, e, now, at("2026-11-21 13:02:00")), ","); got != row.want {
			t.Errorf("%s: started %q, want %s", name, got, row.want)
		}
	}
}

func TestParseMistakes(t *testing.T) {
	for name, row := range map[string]struct {
		job  any
		want string
	}{
		"no dictionary":   {"x", "it is not a dictionary"},
		"no function":     {map[string]any{"seconds": int64(1)}, "function"},
		"bad function":    {map[string]any{"function": "ping", "seconds": int64(1)}, "function"},
		"no time":         {map[string]any{"function": "test.ping"}, "exactly one"},
		"two kinds":       {map[string]any{"function": "test.ping", "seconds": int64(1), "cron": "* * * * *"}, "exactly one"},
		"zero":            {map[string]any{"function": "test.ping", "seconds": int64(0)}, "exactly one"},
		"negative":        {map[string]any{"function": "test.ping", "seconds": int64(-1)}, "seconds"},
		"text for number": {map[string]any{"function": "test.ping", "seconds": "5"}, "seconds: it is not a number"},
		"typing mistake":  {map[string]any{"function": "test.ping", "second": int64(5)}, "exactly one"},
		"unknown key":     {map[string]any{"function": "test.ping", "seconds": int64(5), "maxruning": int64(5)}, "maxruning: there is no such key"},
		"bad cron":        {map[string]any{"function": "test.ping", "cron": "x"}, "cron"},
		"bad when":        {map[string]any{"function": "test.ping", "when": "someday"}, "when"},
		"bad splay":       {map[string]any{"function": "test.ping", "seconds": int64(5), "splay": map[string]any{"start": int64(5), "end": int64(1)}}, "splay"},
		"bad range":       {map[string]any{"function": "test.ping", "seconds": int64(5), "range": map[string]any{"start": "Monday 8:00", "end": "9:00"}}, "range"},
		"until no date":   {map[string]any{"function": "test.ping", "seconds": int64(5), "until": "9:00"}, "until"},
		"bad maxrunning":  {map[string]any{"function": "test.ping", "seconds": int64(5), "maxrunning": int64(-1)}, "maxrunning"},
		"bad kwargs":      {map[string]any{"function": "test.ping", "seconds": int64(5), "kwargs": "x"}, "kwargs"},
		"bad flag":        {map[string]any{"function": "test.ping", "seconds": int64(5), "enabled": "yes"}, "enabled"},
	} {
		s, err := Parse(map[string]any{"good": map[string]any{"function": "test.ping", "seconds": int64(1)}, "odd": row.job}, time.UTC)
		if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "job odd") || s.Jobs != nil {
			t.Errorf("%s: %+v, %v; want nothing and %q", name, s, err, row.want)
		}
	}
	if s, err := Parse(nil, time.UTC); err != nil || !s.Enabled || len(s.Jobs) != 0 {
		t.Errorf("nothing: %+v, %v", s, err)
	}
	if s, err := Parse(map[string]any{"enabled": false}, time.UTC); err != nil || s.Enabled {
		t.Errorf("a disabled one: %+v, %v", s, err)
	}
	if _, err := Parse([]any{}, time.UTC); err == nil {
		t.Error("a list is taken for a schedule")
	}
}

// FuzzCron: what is taken has a next time that lies behind the moment and fits.
func FuzzCron(f *testing.F) {
	for _, s := range []string{"* * * * *", "*/5 1-3,7 * jan-mar mon", "0 0 29 2 *", "@daily"} {
		f.Add(s, int64(1795255200))
	}
	f.Fuzz(func(t *testing.T, line string, unix int64) {
		c, err := ParseCron(line)
		if err != nil || unix < 0 || unix > 4e9 {
			return
		}
		now := time.Unix(unix, 0).UTC()
		next := c.Next(now)
		if next.IsZero() {
			return // the 29th of February around 2100
		}
		if !next.After(now) || next.Second() != 0 || c.minute&(1<<next.Minute()) == 0 || c.hour&(1<<next.Hour()) == 0 || !c.onDay(next) || c.month&(1<<next.Month()) == 0 {
			t.Errorf("%q after %s: %s", line, now, next)
		}
	})
}

// FuzzMoment: what is taken has its next time behind the moment, or none.
func FuzzMoment(f *testing.F) {
	for _, s := range []string{"17:00", "Monday 5:00pm", "2026-11-21 17:00", "12/31/2026 11:59pm"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMoment(text, time.UTC)
		if err != nil {
			return
		}
		now := at("2026-11-21 10:00:00")
		if next := m.Next(now); !next.IsZero() && !next.After(now) {
			t.Errorf("%q after %s: %s", text, now, next)
		}
	})
}

// TestTheClockIsSetBackMeanwhile: a machine has started with a date in the future, and gets the right one.
// Its jobs are not due a year later only. After a small step nothing is due twice.
func TestTheClockIsSetBackMeanwhile(t *testing.T) {
	ahead, right := at("2027-11-21 10:00:00"), at("2026-11-21 10:00:00")
	e := New(none)
	e.Set(Schedule{Enabled: true, Jobs: []Job{job(t, "a", map[string]any{"cron": "30 * * * *"}), job(t, "b", map[string]any{"minutes": int64(20)})}}, map[string]Past{"b": {At: ahead.Add(-time.Minute)}}, ahead)
	if got, want := strings.Join(follow(t, e, ahead, at("2027-11-21 10:30:00")), ","), "b 10:19:00,a 10:30:00"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
	if runs, _, _ := e.Due(at("2027-11-21 10:29:00")); len(runs) > 0 { // a small step
		t.Errorf("after a small step %v are started", runs)
	}
	if got, want := strings.Join(follow(t, e, right, at("2026-11-21 10:45:00")), ","), "b 10:20:00,a 10:30:00,b 10:40:00"; got != want {
		t.Errorf("with the right clock started %s, want %s", got, want)
	}
}

// TestWhatIsAddedLaterIsDueLater: a job that an engine gets later, or that is changed, is not due at the times
// before that: it neither runs at once nor makes up for what it would have run.
func TestWhatIsAddedLaterIsDueLater(t *testing.T) {
	const start, later = "2026-11-21 10:00:00", "2026-11-24 12:02:30"
	old := map[string]any{"cron": "0 3 * * *"}
	for name, row := range map[string]struct {
		before, after map[string]any
		want          string
	}{
		"cron":                   {nil, map[string]any{"cron": "*/10 * * * *"}, "a 12:10:00,a 12:20:00"},
		"when":                   {nil, map[string]any{"when": []any{"12:00", "12:15"}}, "a 12:15:00"},
		"interval":               {nil, map[string]any{"minutes": int64(10)}, "a 12:12:30,a 12:22:30"},
		"long interval":          {nil, map[string]any{"days": int64(1)}, ""},
		"once, in the past":      {nil, map[string]any{"once": "2026-11-22T10:00:00"}, ""},
		"once":                   {nil, map[string]any{"once": "2026-11-24T12:05:00"}, "a 12:05:00"},
		"run on start":           {nil, map[string]any{"minutes": int64(10), "run_on_start": true}, "a 12:02:30,a 12:12:30,a 12:22:30"},
		"another cron":           {old, map[string]any{"cron": "*/10 * * * *"}, "a 12:10:00,a 12:20:00"},
		"an interval for a cron": {old, map[string]any{"minutes": int64(10)}, "a 12:12:30,a 12:22:30"},
		"a shorter interval":     {map[string]any{"days": int64(7)}, map[string]any{"minutes": int64(10)}, "a 12:12:30,a 12:22:30"},
		"other times of day":     {map[string]any{"when": "18:00"}, map[string]any{"when": []any{"17:00", "12:20"}}, "a 12:20:00"},
		"the same with a splay":  {map[string]any{"cron": "*/10 * * * *"}, map[string]any{"cron": "*/10 * * * *", "splay": int64(5)}, "a 12:10:00,a 12:20:00"},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(none)
			s := Schedule{Enabled: true}
			if row.before != nil {
				s.Jobs = []Job{job(t, "a", row.before)}
			}
			e.Set(s, nil, at(start))
			follow(t, e, at(start), at(later))
			s.Jobs = []Job{job(t, "a", row.after)}
			e.Set(s, nil, at(later))
			if got := strings.Join(follow(t, e, at(later), at("2026-11-24 12:25:00")), ","); got != row.want {
				t.Errorf("started %s, want %s", got, row.want)
			}
		})
	}
}

// TestTheClockGoesOnMeanwhile: a machine has slept, or started with a date in the past and has got the right one.
// What it was to run meanwhile runs once.
func TestTheClockGoesOnMeanwhile(t *testing.T) {
	asleep, awake := at("2026-11-21 10:00:00"), at("2026-11-24 12:02:30")
	for name, row := range map[string]struct {
		job  map[string]any
		want string
	}{
		"cron":             {map[string]any{"cron": "*/10 * * * *"}, "a 12:02:30,a 12:10:00,a 12:20:00"},
		"when":             {map[string]any{"when": []any{"11:00", "12:15"}}, "a 12:02:30,a 12:15:00"},
		"interval":         {map[string]any{"minutes": int64(10)}, "a 12:02:30,a 12:10:00,a 12:20:00"},
		"short interval":   {map[string]any{"minutes": int64(7), "splay": int64(1)}, "a 12:02:30,a 12:05:00,a 12:12:00,a 12:19:00"},
		"once":             {map[string]any{"once": "2026-11-22T10:00:00"}, "a 12:02:30"},
		"cron and a splay": {map[string]any{"cron": "0 * * * *", "splay": int64(60)}, "a 12:02:30"},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(none)
			e.Set(Schedule{Enabled: true, Jobs: []Job{job(t, "a", row.job)}}, nil, asleep)
			e.Due(asleep)
			if got := strings.Join(follow(t, e, awake, at("2026-11-24 12:25:00")), ","); got != row.want {
				t.Errorf("started %s, want %s", got, row.want)
			}
		})
	}
}

// TestAFirstIntervalGoesOnOverRestarts: a machine that runs for eight hours a day runs its daily jobs. Each begins
// when it was first in the schedule.
func TestAFirstIntervalGoesOnOverRestarts(t *testing.T) {
	daily := func(name string, more ...string) Job {
		extra := map[string]any{"hours": int64(24)}
		for _, key := range more {
			extra[key] = true
		}
		return job(t, name, extra)
	}
	var last map[string]Past
	var got []string
	for day, jobs := range [][]Job{{daily("a")}, {daily("a"), daily("b"), daily("c", "run_on_start")}, {daily("a"), daily("b"), daily("c", "run_on_start")}} {
		start := at("2026-11-21 09:00:00").AddDate(0, 0, day).Add(time.Duration(day) * time.Hour)
		e := New(none)
		e.Set(Schedule{Enabled: true, Jobs: jobs}, last, start)
		got = append(got, follow(t, e, start, start.Add(8*time.Hour))...)
		last = e.Last()
	}
	want := "a 10:00:00,c 10:00:00,a 11:00:00,b 11:00:00,c 11:00:00"
	if got := strings.Join(got, ","); got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

// TestAnEditedFirstIntervalBeginsAnew: the first interval of a job that is edited while the minion does not run begins
// at the start, as if the job was edited while it runs.
func TestAnEditedFirstIntervalBeginsAnew(t *testing.T) {
	start := at("2026-11-21 10:00:00")
	last := map[string]Past{}
	for i, hours := range []int64{24, 24, 1} {
		now := start.Add(time.Duration(i) * 5 * time.Hour)
		e := New(none)
		e.Set(Schedule{Enabled: true, Jobs: []Job{job(t, "a", map[string]any{"hours": hours})}}, last, now)
		want := start.Add(24 * time.Hour)
		if hours == 1 {
			want = now.Add(time.Hour)
		}
		if got := e.Next("a"); !got.Equal(want) {
			t.Errorf("start %d: it is due at %s, want %s", i, got, want)
		}
		b, err := json.Marshal(e.Last())
		if err == nil {
			last = nil
			err = json.Unmarshal(b, &last)
		}
		if err != nil || !maps.EqualFunc(last, e.Last(), Past.Equal) {
			t.Errorf("stored as %s, and read as %v, %v", b, last, err)
		}
	}
}

// TestAStartBeforeTheClockIsSet: a machine without a clock of its own starts in the past. What is recorded stays, and
// counts as soon as the clock is set. If the clock is not set for long, it was the recorded time that was wrong.
func TestAStartBeforeTheClockIsSet(t *testing.T) {
	real := at("2026-11-21 10:00:00")
	for _, p := range []Past{{At: real}, {At: real, Every: 24 * time.Hour}} {
		begin := func() (*Engine, time.Time) {
			e, now := New(none), at("2020-01-01 00:00:00")
			e.Set(Schedule{Enabled: true, Jobs: []Job{job(t, "a", map[string]any{"hours": int64(24)})}}, map[string]Past{"a": p}, now)
			return e, now
		}
		due := func(e *Engine, now time.Time, last Past) {
			t.Helper()
			if runs, _, _ := e.Due(now); len(runs) > 0 || !e.Last()["a"].Equal(last) {
				t.Errorf("%+v: at %s it runs: %v, recorded is %v, want %v", p, now, len(runs) > 0, e.Last()["a"], last)
			}
		}
		e, now := begin()
		due(e, now, p)
		due(e, now.Add(time.Minute), p)
		due(e, real.Add(8*time.Hour), p)
		if next := e.Next("a"); !next.Equal(real.Add(24 * time.Hour)) {
			t.Errorf("%+v: after the clock is set it is due at %s", p, next)
		}
		e, now = begin()
		due(e, now, p)
		due(e, now.Add(maxStep), Past{At: now, Every: 24 * time.Hour})
	}
}
