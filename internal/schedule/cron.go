package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Cron is a time in the five fields of cron: minute, hour, day of the month, month, day of the
// week. A field is *, a number, a name (jan, mon), a range a-b, each with an optional step as in
// */15, or a comma-separated list of those. As in cron, if both days are restricted, one match is
// enough; Sunday is 0 and 7.
type Cron struct {
	text                          string
	minute, hour, day, month, dow uint64 // bit n is the value n
	anyDay, anyDOW                bool
}

// field describes how one field of a cron line is parsed.
type field struct {
	name     string
	min, max int
	names    []string // of the values from min on
}

var fields = [5]field{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

var aliases = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// ParseCron parses a cron line.
func ParseCron(text string) (*Cron, error) {
	line := text
	if full, ok := aliases[strings.ToLower(strings.TrimSpace(text))]; ok {
		line = full
	}
	words := strings.Fields(line)
	if len(words) != len(fields) {
		return nil, fmt.Errorf("cron %q has %d fields: it needs 5, minute, hour, day, month and day of the week", text, len(words))
	}
	c := &Cron{text: text, anyDay: words[2][0] == '*', anyDOW: words[4][0] == '*'}
	for i, to := range []*uint64{&c.minute, &c.hour, &c.day, &c.month, &c.dow} {
		set, err := fields[i].parse(words[i])
		if err != nil {
			return nil, fmt.Errorf("cron %q: %w", text, err)
		}
		*to = set
	}
	if c.dow&(1<<7) != 0 {
		c.dow |= 1
	}
	if c.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %q: there is no such day", text)
	}
	return c, nil
}

func (f field) parse(word string) (set uint64, err error) {
	for part := range strings.SplitSeq(word, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return 0, fmt.Errorf("%s: %q is not a step", f.name, stepText)
			}
		}
		low, high, err := f.span(span, stepped)
		if err != nil {
			return 0, err
		}
		for n := low; n <= high; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

// span parses *, a, or a-b. A single number with a step continues to the maximum, as in 5/15.
func (f field) span(text string, stepped bool) (low, high int, err error) {
	if text == "*" {
		return f.min, f.max, nil
	}
	from, to, ranged := strings.Cut(text, "-")
	if low, err = f.number(from); err != nil {
		return 0, 0, err
	}
	switch {
	case ranged:
		high, err = f.number(to)
	case stepped:
		high = f.max
	default:
		high = low
	}
	if err == nil && high < low {
		err = fmt.Errorf("%s: %q ends before it begins", f.name, text)
	}
	return low, high, err
}

func (f field) number(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max {
		return 0, fmt.Errorf("%s: %q is out of range: it goes from %d to %d", f.name, text, f.min, f.max)
	}
	return n, nil
}

// String returns the line; "" for nil.
func (c *Cron) String() string {
	if c == nil {
		return ""
	}
	return c.text
}

// horizon is how many years Next searches: a 29th of February may be eight years away.
const horizon = 9

// Next returns the first time after t, in the zone of t; zero if there is none within nine years.
// If a clock change skips an hour, it is skipped; if it repeats an hour, the hour matches twice.
func (c *Cron) Next(t time.Time) time.Time {
	t = t.Truncate(time.Minute).Add(time.Minute)
	for end := t.Year() + horizon; t.Year() < end; {
		y, m, d := t.Date()
		switch {
		case c.month&(1<<m) == 0:
			t = clockTime(y, m+1, 1, 0, t.Location())
		case !c.onDay(t):
			t = clockTime(y, m, d+1, 0, t.Location())
		case c.hour&(1<<t.Hour()) == 0:
			t = t.Add(time.Hour - time.Duration(t.Minute())*time.Minute)
		case c.minute&(1<<t.Minute()) == 0:
			later := c.minute >> (t.Minute() + 1)
			step := 60 - t.Minute()
			if later != 0 {
				step = 1 + bits.TrailingZeros64(later)
			}
			t = t.Add(time.Duration(step) * time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}

func (c *Cron) onDay(t time.Time) bool {
	day, dow := c.day&(1<<t.Day()) != 0, c.dow&(1<<t.Weekday()) != 0
	if c.anyDay || c.anyDOW {
		return day && dow
	}
	return day || dow
}

// clockTime returns the time that the clock shows s seconds after midnight of a day. Where the clock skips
// midnight, time.Date may return a time of the day before: it is then the first moment of the day.
func clockTime(y int, m time.Month, d, s int, loc *time.Location) time.Time {
	t := time.Date(y, m, d, s/3600, s/60%60, s%60, 0, loc)
	if day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC); date(t).Before(day) {
		if _, change := t.ZoneBounds(); !change.IsZero() {
			return change
		}
	}
	return t
}

func date(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}
