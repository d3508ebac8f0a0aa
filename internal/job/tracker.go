package job

import (
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Tracker follows one job. It is a state machine: the caller reports what has happened and
// when, and gets the updates to pass on. It is not safe for concurrent use.
type Tracker struct {
	timeout time.Duration
	minions map[salt.MinionID]*track
	open    int       // how many minions are expected to report now
	parked  int       // how many are away and may still get the job
	until   time.Time // until when the job waits for a minion that sends nothing at all; zero for not
}

type track struct {
	state State
	text  string
	heard time.Time // time of the latest message
	held  int       // how often it is suspended
	until time.Time // for a parked one: when it is too late
}

// Standing is the state of a job on one minion.
type Standing struct {
	State State
	Text  string
	Until time.Time // for one that is away: how long the job waits for it
}

// Data returns a standing as events and runners show it.
func (s Standing) Data() map[string]any {
	one := map[string]any{"state": string(s.State)}
	if s.State == Sent {
		one["state"] = "sent"
	}
	if s.Text != "" {
		one["text"] = s.Text
	}
	if !s.Until.IsZero() {
		one["until"] = s.Until.UTC().Format(time.RFC3339)
	}
	return one
}

// NewTracker starts to follow a job that is sent to ids at now, or when Sent says so. A connected minion that sends
// nothing for timeout is given up; one that sends heartbeats is waited for as long as it does.
func NewTracker(ids []salt.MinionID, timeout time.Duration, now time.Time) *Tracker {
	t := &Tracker{timeout: timeout, minions: make(map[salt.MinionID]*track, len(ids))}
	for _, id := range ids {
		t.minions[id] = &track{heard: now}
	}
	t.open = len(t.minions) // duplicate ids count once
	return t
}

// Wait makes the job wait until then for a minion that sends nothing: its connection may be
// dead.
func (t *Tracker) Wait(until time.Time) { t.until = until }

// Settled reports whether no more is expected for now: the remaining minions are away and get
// the job when they reconnect.
func (t *Tracker) Settled() bool { return t.open == 0 }

// Finished reports whether no more is expected at all.
func (t *Tracker) Finished() bool { return t.open == 0 && t.parked == 0 }

// Expects reports whether id is one of the job's minions.
func (t *Tracker) Expects(id salt.MinionID) bool { return t.minions[id] != nil }

// Standings returns the states of the job, by minion.
func (t *Tracker) Standings() map[salt.MinionID]Standing {
	all := make(map[salt.MinionID]Standing, len(t.minions))
	for id, m := range t.minions {
		all[id] = Standing{m.state, m.text, m.until}
	}
	return all
}

// Restore sets the state of a minion from before a restart of the master.
func (t *Tracker) Restore(id salt.MinionID, s Standing, now time.Time) {
	if m := t.minions[id]; m != nil {
		t.move(m, Report{State: s.State, Text: s.Text}, s.Until)
		m.heard = now
	}
}

// Hold records that the job is not sent to id yet: its turn will come.
func (t *Tracker) Hold(id salt.MinionID) {
	if m := t.minions[id]; m != nil && m.state == Sent {
		t.move(m, Report{State: Queued, Text: "its turn in the batch has not come"}, time.Time{})
	}
}

// Park records that id is away and gets the job if it reconnects before until.
func (t *Tracker) Park(id salt.MinionID, text string, until time.Time) *Update {
	m := t.minions[id]
	if m == nil || m.state != Sent && m.state != Queued {
		return nil
	}
	t.move(m, Report{State: Queued, Text: text}, until)
	return &Update{ID: id, Report: Report{State: Queued, Text: text}}
}

// Parked reports whether the job waits for id to reconnect.
func (t *Tracker) Parked(id salt.MinionID) bool {
	m := t.minions[id]
	return m != nil && m.isParked()
}

// Unheard reports whether the job was sent to id and no message has come since.
func (t *Tracker) Unheard(id salt.MinionID) bool {
	m := t.minions[id]
	return m != nil && m.state == Sent
}

// Sent records that the job is sent to a minion now, from which it has the whole timeout to answer. If that may have got
// it before, from a member that is gone, what Doubt has said stays. It reports false if the job is not to be sent to it: it was
// cancelled, for example, or the minion has answered meanwhile.
func (t *Tracker) Sent(id salt.MinionID, now time.Time) bool {
	m := t.minions[id]
	if m == nil || m.state.Final() {
		return false
	}
	if m.state == Queued || m.state == Sent {
		t.move(m, Report{State: Sent}, time.Time{})
		m.heard = now
	}
	return true
}

// Cancel withdraws the job from a minion that it was not sent to yet.
func (t *Tracker) Cancel(id salt.MinionID, text string) *Update {
	m := t.minions[id]
	if m == nil || m.state != Queued {
		return nil
	}
	return t.set(id, m, Report{State: Cancelled, Text: text})
}

// Revoked records that id cannot come back as who was meant: if it is away, the job does not reach it, or its return does not
// come.
func (t *Tracker) Revoked(id salt.MinionID, text string) *Update {
	m := t.minions[id]
	switch {
	case m == nil:
	case m.isParked():
		return t.Cancel(id, text)
	case m.state == Disconnected:
		return t.Away(id, text)
	}
	return nil
}

// Report handles a minion's message. It returns nil for what changes nothing: a second return,
// a receipt after the return, a message of a minion that is not in the job, a state that
// minions may not report.
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

// Suspend stops the timeout of id, which is not given up until Resume undoes that: what it has sent has arrived, and
// waits for something else, or the job is still on its way to it. Both may be called several times.
func (t *Tracker) Suspend(id salt.MinionID) {
	if m := t.minions[id]; m != nil {
		m.held++
	}
}

// Resume undoes one Suspend. After the last one the timeout begins anew.
func (t *Tracker) Resume(id salt.MinionID, now time.Time) {
	if m := t.minions[id]; m != nil && m.held > 0 {
		m.held--
		m.begin(now)
	}
}

// Restart begins the timeouts of all minions anew: what they have sent may have waited for something else.
func (t *Tracker) Restart(now time.Time) {
	for _, m := range t.minions {
		m.begin(now)
	}
}

// begin begins the timeout anew, but not earlier than it begins already.
func (m *track) begin(now time.Time) {
	if now.After(m.heard) {
		m.heard = now
	}
}

// Lost handles the end of a minion's connection. It may reconnect and return, so it gets one
// more timeout.
func (t *Tracker) Lost(id salt.MinionID, now time.Time) *Update {
	return t.Unsure(id, "the connection was lost while the job was running", now)
}

// Unsure records, with the reason, that it is not known whether id has the job or can answer. It gets one more timeout
// to say so.
func (t *Tracker) Unsure(id salt.MinionID, text string, now time.Time) *Update {
	m := t.minions[id]
	if m == nil || m.state.Final() || m.state == Disconnected || m.state == Queued {
		return nil
	}
	m.heard = now
	return t.set(id, m, Report{State: Disconnected, Text: text})
}

// Doubt records that the master was restarted, or the job has gone to another master, while it was
// running on id: the minion is asked, and given up if it does not answer. how says which.
func (t *Tracker) Doubt(id salt.MinionID, how string, now time.Time) *Update {
	m := t.minions[id]
	if m == nil || m.state.Final() || m.state == Queued {
		return nil
	}
	m.heard = now
	return t.set(id, m, Report{State: Disconnected, Text: how + " while the job was under way, and the minion has not said what became of it"})
}

// Again records that the job is sent once more to id, which never received it.
func (t *Tracker) Again(id salt.MinionID, now time.Time) {
	if t.Open(id) {
		t.move(t.minions[id], Report{State: Sent}, time.Time{})
		t.minions[id].heard = now
	}
}

// Open reports whether id was sent the job and is not finished.
func (t *Tracker) Open(id salt.MinionID) bool {
	m := t.minions[id]
	return m != nil && !m.state.Final() && m.state != Queued
}

// WaitsUntil is the text for a waiting job.
func WaitsUntil(until time.Time) string {
	return "the job waits for it until " + until.Format("2006-01-02 15:04:05")
}

// Away records that a minion is not connected and was not sent the job.
func (t *Tracker) Away(id salt.MinionID, text string) *Update {
	m := t.minions[id]
	if m == nil || m.state.Final() {
		return nil
	}
	return t.set(id, m, Report{State: NotConnected, Text: text})
}

func (t *Tracker) set(id salt.MinionID, m *track, r Report) *Update {
	t.move(m, r, time.Time{})
	return &Update{ID: id, Report: r}
}

// move changes the state and updates the counts.
func (t *Tracker) move(m *track, r Report, until time.Time) {
	t.count(m, -1)
	m.state, m.text, m.until = r.State, r.Text, until
	t.count(m, 1)
}

func (t *Tracker) count(m *track, by int) {
	switch {
	case m.isParked():
		t.parked += by
	case !m.state.Final():
		t.open += by
	}
}

func (m *track) isParked() bool { return m.state == Queued && !m.until.IsZero() }

// deadline returns when the minion is given up, zero for never.
func (t *Tracker) deadline(m *track) time.Time {
	switch {
	case m.state.Final():
		return time.Time{}
	case m.state == Queued:
		return m.until
	case m.held > 0:
		return time.Time{}
	}
	return m.heard.Add(t.timeout)
}

// Tick handles the time. It returns the minions that are given up now, in the order of their
// ids, and when to call it again; a zero time means never. Messages in between make that later,
// never earlier.
func (t *Tracker) Tick(now time.Time) (given []Update, next time.Time) {
	for id, m := range t.minions {
		deadline := t.deadline(m)
		switch {
		case deadline.IsZero():
		case !deadline.After(now):
			given = append(given, *t.giveUp(id, m, now))
		case next.IsZero() || deadline.Before(next):
			next = deadline
		}
	}
	return sorted(given), next
}

func sorted(u []Update) []Update {
	slices.SortFunc(u, func(a, b Update) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return u
}

// giveUp makes a missing return final, or lets the job wait. A disconnected minion stays
// Disconnected, which says more than Silent.
func (t *Tracker) giveUp(id salt.MinionID, m *track, now time.Time) *Update {
	if m.state == Sent && now.Before(t.until) {
		return t.Park(id, "nothing was heard of it; "+WaitsUntil(t.until), t.until)
	}
	r := Report{State: Silent, Text: "nothing was heard of it in time"}
	switch m.state {
	case Queued:
		r = Report{State: Expired, Text: "it did not come back in time"}
	case Disconnected:
		r = Report{State: NotConnected, Text: m.text}
	case Received, Running:
		r.Text = "it received the job, then nothing was heard of it in time"
	}
	return t.set(id, m, r)
}

// Abandon makes every open state final, when the daemon stops. It returns the updates in the
// order of the ids.
func (t *Tracker) Abandon(text string) []Update {
	var given []Update
	for id, m := range t.minions {
		if !m.state.Final() {
			given = append(given, *t.set(id, m, Report{State: Silent, Text: text}))
		}
	}
	return sorted(given)
}
