package salt

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Day is 24 hours: calendars do not matter here.
const Day = 24 * time.Hour

// MaxDuration keeps sums of durations and times far from overflow.
const MaxDuration = 100 * 365 * Day

// ParseDuration parses a duration as people type it, in configuration files and in options: a
// number of units, or numbers with their own units: 90s, 1h30m, 1.5d. The limit is MaxDuration in
// both directions; the error has a hint. Only a number without a unit can be negative.
func ParseDuration(text string, unit time.Duration) (time.Duration, error) {
	bad := WithHint(fmt.Errorf("%q is not a time", text),
		"write a number of "+unitName(unit)+", or a number with a unit: ms, s, m, h, d or w")
	if f, err := parseNumber(text); err == nil {
		return scale(f, unit, bad)
	}
	if text == "" {
		return 0, bad
	}
	var sum time.Duration
	for rest := text; rest != ""; {
		number := prefixOf(rest, "0123456789.")
		name := prefixOf(rest[len(number):], "dhmsw")
		rest = rest[len(number)+len(name):]
		f, err := parseNumber(number)
		if err != nil || unitOf(name) == 0 {
			return 0, bad
		}
		d, err := scale(f, unitOf(name), bad)
		if err != nil || sum+d > MaxDuration {
			return 0, bad
		}
		sum += d
	}
	return sum, nil
}

// unitOf returns the duration for a unit, 0 if it is unknown. A month or a year has no fixed
// length.
func unitOf(name string) time.Duration {
	switch name {
	case "ms":
		return time.Millisecond
	case "s":
		return time.Second
	case "m":
		return time.Minute
	case "h":
		return time.Hour
	case "d":
		return Day
	case "w":
		return 7 * Day
	}
	return 0
}

// parseNumber parses a decimal number, but not NaN or 0x1p4.
func parseNumber(s string) (float64, error) {
	if s == "" || strings.Trim(s[1:], "0123456789.") != "" || !strings.ContainsAny(s[:1], "0123456789.-+") {
		return 0, errors.New("not a number")
	}
	return strconv.ParseFloat(s, 64)
}

func scale(f float64, unit time.Duration, bad error) (time.Duration, error) {
	if f *= float64(unit); math.Abs(f) > float64(MaxDuration) {
		return 0, bad
	}
	return time.Duration(math.Round(f)), nil
}

// prefixOf returns the longest prefix of s that contains only characters of set.
func prefixOf(s, set string) string {
	return s[:len(s)-len(strings.TrimLeft(s, set))]
}

func unitName(unit time.Duration) string {
	switch unit {
	case time.Millisecond:
		return "milliseconds"
	case time.Minute:
		return "minutes"
	case time.Hour:
		return "hours"
	}
	return "seconds"
}
