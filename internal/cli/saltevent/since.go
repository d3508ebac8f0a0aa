package saltevent

import (
	"strconv"
	"time"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

// The formats of a time, in local time without a zone.
var layouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

// setSince reads --since: a duration before now, a time, or a sequence.
func setSince(q *brine.ListenOptions, text string, now time.Time) error {
	if text == "" {
		return nil
	}
	moment, seq, err := readSince("--since", text, now)
	q.Since, q.FromSeq = moment, seq
	if at, notAt := event.ReadPosition(text); err != nil && notAt == nil {
		for journal := range at {
			at[journal] -= min(1, at[journal]) // it begins with this event, and At means after one
		}
		q.At = at.String()
		return nil
	}
	return err
}

func readSince(option, text string, now time.Time) (moment time.Time, seq uint64, err error) {
	if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Time{}, max(seq, 1), nil
	}
	if d, err := salt.ParseDuration(text, time.Second); err == nil && d >= 0 {
		return now.Add(-d), 0, nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, 0, nil
		}
	}
	return time.Time{}, 0, salt.WithHint(cli.Usagef("option %s: %q is not a time span, a moment or the number of an event", option, text),
		"write it as 90s, 1h, 2d, 2026-11-21T12:00:00, or as the seq of an event")
}
