package job

import (
	"slices"
	"strings"
	"time"

	"brine/internal/salt"
)

// Tracker follows one job. It is a state machine: the caller feeds what happened
// with the time it happened, and gets the updates to pass on. It is not safe for
// concurrent use.
type Tracker struct {
	timeout time.Duration
	minions map[salt.MinionID]*track
	open    int // how many are not final
}

type track struct {
	state State
	heard time.Time // the last sign of life
}

// NewTracker starts to follow a job that was sent to ids at now. A minion that is
// connected and says nothing for timeout is given up; one that says it is running
// the job is waited for as long as it goes on saying so.
func NewTracker(ids []salt.MinionID, timeout time.Duration, now time.Time) *Tracker {
	t := &Tracker{timeout: timeout, minions: make(map[salt.MinionID]*track, len(ids))}
	for _, id := range ids {
		t.minions[id] = &track{heard: now}
	}
	t.open = len(t.minions) // an id that is named twice is awaited once
	return t
}

// Finished says whether nothing more is expected.
func (t *Tracker) Finished() bool { return t.open == 0 }

// Expects says whether id is one of the job's minions.
func (t *Tracker) Expects(id salt.MinionID) bool { return t.minions[id] != nil }

// Report takes what a minion said. It returns nil for what changes nothing: a
// second return, a receipt that comes after the return, a word of a minion that
// was not asked, a state that is not a minion's to report.
func (t *Tracker) Report(id salt.MinionID, r Report, now time.Time) *Update {
	m := t.minions[id]
	if m == nil || !r.State.reported() {
		return nil
	}
	m.heard = now
	missing := m.state == Silent || m.state == NotConnected || m.state == Disconnected
	if m.state.Final() && !(missing && r.State.Final()) {
		return nil
	}
	if !r.State.Final() && (m.state == r.State || m.state == Running && r.State == Received) {
		return nil
	}
	return t.set(id, m, r)
}

// Lost takes the end of a minion's connection. It may come back and return, so
// it is given one more timeout.
func (t *Tracker) Lost(id salt.MinionID, now time.Time) *Update {
	m := t.minions[id]
	if m == nil || m.state.Final() || m.state == Disconnected {
		return nil
	}
	m.heard = now
	return t.set(id, m, Report{State: Disconnected, Text: "the connection was lost while the job was running"})
}

// Away takes that a minion is not connected and was not sent the job.
func (t *Tracker) Away(id salt.MinionID, text string) *Update {
	m := t.minions[id]
	if m == nil || m.state.Final() {
		return nil
	}
	return t.set(id, m, Report{State: NotConnected, Text: text})
}

func (t *Tracker) set(id salt.MinionID, m *track, r Report) *Update {
	if was, is := m.state.Final(), r.State.Final(); is && !was {
		t.open--
	}
	m.state = r.State
	return &Update{ID: id, Report: r}
}

// Tick takes the time. It returns the minions that are given up by it, in the
// order of their ids, and when to call again; a zero time means never.
func (t *Tracker) Tick(now time.Time) (given []Update, next time.Time) {
	for id, m := range t.minions {
		if m.state.Final() {
			continue
		}
		deadline := m.heard.Add(t.timeout)
		if deadline.After(now) {
			if next.IsZero() || deadline.Before(next) {
				next = deadline
			}
			continue
		}
		given = append(given, *t.giveUp(id, m))
	}
	return sorted(given), next
}

func sorted(u []Update) []Update {
	slices.SortFunc(u, func(a, b Update) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return u
}

// giveUp makes what is missing final. A disconnected minion stays so: that is
// more than silence.
func (t *Tracker) giveUp(id salt.MinionID, m *track) *Update {
	r := Report{State: Silent, Text: "nothing was heard of it in time"}
	switch m.state {
	case Disconnected:
		r = Report{State: NotConnected, Text: "the connection was lost while the job was running"}
	case Received, Running:
		r.Text = "it received the job, then nothing was heard of it in time"
	}
	return t.set(id, m, r)
}

// Abandon makes everything that is open final, as the daemon stops. It returns
// the updates in the order of the ids.
func (t *Tracker) Abandon(text string) []Update {
	var given []Update
	for id, m := range t.minions {
		if !m.state.Final() {
			given = append(given, *t.set(id, m, Report{State: Silent, Text: text}))
		}
	}
	return sorted(given)
}
