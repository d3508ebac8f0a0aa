package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Moment is a time on every day, on one day of every week, or on one date.
type Moment struct {
	clock time.Duration // since midnight
	week  bool
	day   time.Weekday // with week
	date  time.Time    // the date and time, for one date
}

// equal compares the dates as times: a parse of an offset may make a zone of its own.
func (m Moment) equal(n Moment) bool {
	date := m.date.Equal(n.date)
	m.date, n.date = time.Time{}, time.Time{}
	return date && m == n
}

// clocks are the formats of a time of day, dates those of a date.
var (
	clocks = []string{"15:04:05", "15:04", "3:04pm", "3:04:05pm", "3pm"}
	dates  = []string{"2006-01-02", "2006/01/02", "1/2/2006", "1/2/06", "January 2, 2006", "January 2 2006", "2 January 2006", "Jan 2, 2006", "Jan 2 2006", "2 Jan 2006"}
)

// ParseMoment parses a time in the zone of loc: 17:00 or 5:00pm for every day, with a day of the
// week before it for every week, with a date before it (2026-11-21 17:00, 11/21/2026 5:00pm,
// 2026-11-21T17:00:00) only for that date. A date alone is its midnight.
func ParseMoment(text string, loc *time.Location) (Moment, error) {
	plain := strings.Join(strings.Fields(text), " ")
	if clock, err := parseClock(plain); err == nil {
		return Moment{clock: clock}, nil
	}
	if m, ok := parseWeekday(plain); ok {
		return m, nil
	}
	if t, err := parseDate(plain, loc); err == nil {
		return Moment{date: t}, nil
	}
	return Moment{}, fmt.Errorf("%q is not a time: write 17:00, 5:00pm, Monday 5:00pm or 2026-11-21 17:00", text)
}

var errTime = errors.New("no time")

func parseClock(text string) (time.Duration, error) {
	text = strings.ToLower(strings.ReplaceAll(text, " ", ""))
	for _, layout := range clocks {
		if t, err := time.Parse(layout, text); err == nil {
			return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second, nil
		}
	}
	return 0, errTime
}

func parseWeekday(text string) (Moment, bool) {
	name, rest, ok := strings.Cut(text, " ")
	if !ok {
		return Moment{}, false
	}
	clock, err := parseClock(rest)
	name = strings.TrimSuffix(strings.ToLower(name), ",")
	for d := time.Sunday; d <= time.Saturday; d++ {
		full := strings.ToLower(d.String())
		if err == nil && (name == full || name == full[:3]) {
			return Moment{week: true, day: d, clock: clock}, true
		}
	}
	return Moment{}, false
}

// parseDate parses a date with or without a time.
func parseDate(text string, loc *time.Location) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation("2006-01-02T15:04:05", text, loc); err == nil {
		return t, nil
	}
	for _, layout := range dates {
		if t, err := time.ParseInLocation(layout, text, loc); err == nil {
			return t, nil
		}
		for _, clock := range clocks {
			for _, blank := range []string{" ", ""} {
				full := layout + " " + strings.Replace(clock, "pm", blank+"pm", 1)
				if t, err := time.ParseInLocation(full, lowerHalf(text), loc); err == nil {
					return t, nil
				}
			}
		}
	}
	return time.Time{}, errTime
}

// lowerHalf writes AM and PM as in the layouts.
func lowerHalf(text string) string {
	return strings.NewReplacer("AM", "am", "PM", "pm").Replace(text)
}

// Next returns the first time after t; zero if there is none.
func (m Moment) Next(t time.Time) time.Time {
	if !m.date.IsZero() {
		if m.date.After(t) {
			return m.date
		}
		return time.Time{}
	}
	for n := 0; ; n++ { // at most eight days
		at := m.on(t, n)
		if at.After(t) && (!m.week || at.Weekday() == m.day) {
			return at
		}
	}
}

// on returns the clock time on the day n days after that of t: the wall clock time, even if the
// clock changes in between. A time before the first moment of a day without midnight is that moment.
func (m Moment) on(t time.Time, n int) time.Time {
	y, month, d := t.Date()
	return clockTime(y, month, d+n, int(m.clock/time.Second), t.Location())
}

// Range is a part of each day, or the time between two dates.
type Range struct {
	start, end Moment
	invert     bool
}

// Contains reports whether a job may start at t. A part of the day whose end is before its start
// includes midnight.
func (r Range) Contains(t time.Time) bool {
	var in bool
	if !r.start.date.IsZero() {
		in = !t.Before(r.start.date) && !t.After(r.end.date)
	} else {
		start, end := r.start.on(t, 0), r.end.on(t, 0)
		in = !t.Before(start) && !t.After(end)
		if end.Before(start) {
			in = !t.Before(start) || !t.After(end)
		}
	}
	return in != r.invert
}
