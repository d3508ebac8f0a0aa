package membership

import (
	"log/slog"
	"time"
)

// clockBound is by how much a clock may differ before that is logged. With NTP it is milliseconds, and some
// seconds for a moment after a machine was suspended. What is judged by a clock, the age of events and
// jobs, tokens and certificates of users, lasts minutes to days.
const clockBound = 10 * time.Second

// clockHint is the hint about a clock that differs.
const clockHint = "run `date -u` on both machines, and keep the clocks of all members right with NTP, for example with chrony"

// clockAhead returns by how much another clock is at least ahead of the own one, negative if it is behind;
// nil if the other one was not told. It was read at some time between sent and received, which are
// of the own clock: a slow answer hides a difference, and makes none.
func clockAhead(sent, other, received time.Time) *time.Duration {
	switch {
	case other.IsZero():
		return nil
	case other.After(received):
		return new(other.Sub(received))
	case other.Before(sent):
		return new(other.Sub(sent))
	}
	return new(time.Duration(0))
}

// clocks knows which other members have another time than this one; used by Run.
type clocks struct{ apart map[string]bool }

// compare logs which members have another time. A clock is right again at half the bound, so that one at
// the bound is not logged again and again.
func (c *clocks) compare(all map[string]said, log *slog.Logger) {
	apart := map[string]bool{}
	for name, s := range all {
		if s.ahead == nil {
			continue
		}
		was, by := c.apart[name], s.ahead.Abs()
		apart[name] = by > clockBound || was && by > clockBound/2
		switch {
		case apart[name] && !was:
			log.Warn("the clock of another member differs from that of this one: each removes what is too old, and judges tokens, by its own clock", "member", name, "ahead", s.ahead.Round(time.Second), "hint", clockHint)
		case was && !apart[name]:
			log.Info("the clock of another member is that of this one again", "member", name)
		}
	}
	c.apart = apart
}
