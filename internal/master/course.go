package master

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/fleet"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// course carries one job from its start to its end, in the master's own time: it
// goes on when whoever started the job is gone. It sends the job when the turn of
// a minion has come, follows what is heard, and writes down where the job stands.
type course struct {
	m     *Master
	plan  plan
	known *known
	wake  chan struct{}

	mu       sync.Mutex // guards what follows
	tracker  *job.Tracker
	batch    *job.Batch // nil where all begin at once
	due      []salt.MinionID
	dirty    map[salt.MinionID]bool // whose standing is not in the journal
	watchers map[*watcher]bool
	settled  bool

	sealed [][]byte // the envelope in pieces; for who sends
	fresh  time.Time
}

// plan is what must be known of a job to carry it on after a restart.
type plan struct {
	Envelope job.Envelope             `json:"envelope"`
	Start    job.Start                `json:"start"`
	Timeout  job.Seconds              `json:"timeout"`
	Batch    job.BatchOptions         `json:"batch"`
	Began    time.Time                `json:"began,omitzero"`
	Until    time.Time                `json:"until,omitzero"` // how long it waits for those that are away; zero is not at all
	Keys     map[salt.MinionID]string `json:"keys,omitempty"` // the job is for the holder of this key; none: it is not sent again
	Internal bool                     `json:"internal,omitempty"`
	Backend  string                   `json:"backend,omitempty"` // that authenticated the user
	Metadata any                      `json:"-"`
}

// lasts says whether the job goes on after a restart of the master, however late.
func (p *plan) lasts(batch *job.Batch) bool { return batch != nil || !p.Until.IsZero() }

// waits says whether the job waits for a minion that is away.
func (p *plan) waits(id salt.MinionID, now time.Time) bool {
	return p.Keys[id] != "" && now.Before(p.Until)
}

func newCourse(m *Master, p plan, batch *job.Batch, now time.Time) *course {
	ids := slices.Concat(p.Start.Minions, p.Start.Missing)
	c := &course{
		m: m, plan: p, known: knownOf(&p), wake: make(chan struct{}, 1), batch: batch,
		tracker: job.NewTracker(ids, p.Timeout.Duration(), now), dirty: map[salt.MinionID]bool{}, watchers: map[*watcher]bool{},
	}
	c.tracker.Wait(p.Until)
	return c
}

// begin sends the job to those whose turn it is, and carries it on from then on.
func (c *course) begin() {
	c.mu.Lock()
	for _, id := range c.plan.Start.Missing {
		text := "no accepted key has this id"
		if !c.plan.Until.IsZero() {
			text += "; the job does not wait for it"
		}
		c.tell(c.tracker.Away(id, text))
	}
	if c.batch != nil {
		for _, id := range c.plan.Start.Minions {
			c.tracker.Hold(id)
		}
	}
	c.mu.Unlock()
	if c.batch == nil {
		c.send(c.plan.Start.Minions)
	}
	c.m.wg.Go(c.run)
}

// run waits for what happens by time.
func (c *course) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	record := time.Time{} // when what has changed is written down
	for {
		due, next, finished := c.look(time.Now())
		switch {
		case len(due) > 0:
			c.send(due)
			continue
		case finished:
			c.end()
			return
		}
		if record, next = c.keep(record, next); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-c.wake:
		case <-timer.C:
		case <-c.m.ctx.Done():
			c.record()
			return
		}
	}
}

// look takes the time: who is given up, whose turn has come, when to look again.
func (c *course) look(now time.Time) (due []salt.MinionID, next time.Time, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	given, next := c.tracker.Tick(now)
	for i := range given {
		c.tell(&given[i])
	}
	due, c.due = c.due, nil
	if c.batch != nil {
		turn, again := c.batch.Next(now)
		if len(turn) > 0 {
			c.show(told{Update: job.Update{Begun: turn}})
		}
		due, next = append(due, turn...), earlier(next, again)
	}
	c.settle()
	return due, next, c.tracker.Finished()
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// recordEvery is how often it is written down where a job stands on the minions
// that have not returned. A job that is quicker leaves its returns only.
const recordEvery = time.Second

// keep writes down what has changed if it is time, and returns when it is next.
func (c *course) keep(record, next time.Time) (time.Time, time.Time) {
	c.mu.Lock()
	changed := len(c.dirty) > 0
	c.mu.Unlock()
	switch now := time.Now(); {
	case !changed:
		return time.Time{}, next
	case record.IsZero():
		record = now.Add(recordEvery)
	case !record.After(now):
		c.record()
		return time.Time{}, next
	}
	return record, earlier(next, record)
}

// record writes into the journal what has changed since it was last done.
func (c *course) record() {
	c.mu.Lock()
	minions := map[string]any{}
	all := c.tracker.Standings()
	for id := range c.dirty {
		minions[string(id)] = all[id].Data()
	}
	clear(c.dirty)
	c.mu.Unlock()
	c.m.recordStates(c.plan.Start.JID, minions)
}

// recordStates stores where a job stands on some minions.
func (m *Master) recordStates(jid salt.JID, minions map[string]any) {
	if len(minions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), storeTime)
	defer cancel()
	if _, err := m.events.Store(ctx, "salt/job/"+string(jid)+"/state", map[string]any{"jid": string(jid), "minions": minions}, ""); err != nil {
		m.log.Error("where a job stands is not recorded", "jid", jid, "err", err)
	}
}

// end is when nothing more is expected.
func (c *course) end() {
	c.record()
	c.m.jobs.forget(c)
	c.m.dropPlan(c.plan.Start.JID)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
}

// settle lets those go who watch, when nothing more is expected for now.
func (c *course) settle() {
	if c.settled = c.tracker.Settled(); c.settled {
		for w := range c.watchers {
			w.nudge()
		}
	}
}

// tell passes an update on; nil is none. It is called with mu held, as show is.
func (c *course) tell(u *job.Update) {
	if u != nil {
		c.show(told{Update: *u})
	}
}

func (c *course) show(t told) {
	for w := range c.watchers {
		w.push(t)
	}
	if t.ID == "" {
		return
	}
	clean := len(c.dirty) == 0
	if t.State.Returned() {
		delete(c.dirty, t.ID) // the return says it
	} else {
		c.dirty[t.ID] = true
	}
	if c.batch != nil && (t.State.Final() || t.State == job.Queued) {
		c.batch.Ended(t.ID, t.State, time.Now())
		c.stopBatch()
		c.stir()
	}
	if clean && len(c.dirty) > 0 || c.tracker.Settled() {
		c.stir()
	}
}

// stopBatch ends a batch in which more minions have failed than may.
func (c *course) stopBatch() {
	if !c.batch.Spent() {
		return
	}
	text := "the batch was stopped: more minions failed than may"
	if c.plan.Batch.MaxFail == "0" {
		text = "Batch run stopped due to failhard"
	}
	for _, id := range c.batch.Rest() {
		c.tell(c.tracker.Cancel(id, text))
	}
}

// stir makes run look again.
func (c *course) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// report takes what a minion said. Places is where its return lies in the journal.
func (c *course) report(id salt.MinionID, r job.Report, places []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.tracker.Report(id, r, time.Now())
	if u == nil {
		return
	}
	if len(places) > 0 {
		// It is read from the journal for each who watches; what stays would hold all of it.
		u.Return.V, u.Retcode.V, u.Success.V = nil, nil, nil
	}
	c.show(told{*u, places})
}

// lost takes the end of a minion's connection. A job that waits for minions waits
// on for one that may not have got it: it runs it once, however often it is sent.
func (c *course) lost(id salt.MinionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan.waits(id, time.Now()) && c.tracker.Unheard(id) {
		c.away(id, "the connection was lost as the job was sent")
		return
	}
	c.tell(c.tracker.Lost(id, time.Now()))
}

// back takes that a minion is connected again, with this key.
func (c *course) back(id salt.MinionID, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tracker.Parked(id) {
		return
	}
	if c.plan.Keys[id] != key {
		c.tell(c.tracker.Cancel(id, "the minion has another key than when the job was left for it"))
		return
	}
	c.due = append(c.due, id)
	c.stir()
}

// open says whether something is expected of a minion that was sent the job.
func (c *course) open(id salt.MinionID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tracker.Open(id)
}

// missed takes that a minion, which has this key, was asked for the job and never got
// it: it is sent again, unless that is too late.
func (c *course) missed(id salt.MinionID, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, now := &c.plan, time.Now()
	switch {
	case !c.tracker.Open(id):
	case p.Keys[id] == "":
		c.tell(c.tracker.Away(id, "the job did not reach it, and is too large to be kept and sent again"))
	case p.Keys[id] != key:
		c.tell(c.tracker.Away(id, "the job did not reach it, and it has another key now"))
	case !p.lasts(c.batch) && now.After(p.Began.Add(expiry)):
		c.tell(c.tracker.Report(id, job.Report{State: job.Expired, Text: "the job did not reach it in time"}, now))
	default:
		c.m.log.Info("job sent again: it did not reach the minion", "jid", p.Start.JID, "minion", id)
		c.tracker.Again(id, now)
		c.due = append(c.due, id)
		c.stir()
	}
}

// revoke withdraws the job from those that wait for it and whose key is not
// accepted any more.
func (c *course) revoke(accepted func(id salt.MinionID, key string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, key := range c.plan.Keys {
		if c.tracker.Parked(id) && !accepted(id, key) {
			c.tell(c.tracker.Cancel(id, "its key is no longer accepted"))
		}
	}
}

// cancel withdraws the job from everybody whom it was not sent to, and returns
// them, sorted.
func (c *course) cancel(by string) []salt.MinionID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batch != nil {
		c.batch.Rest()
	}
	var ids []salt.MinionID
	for id, s := range c.tracker.Standings() {
		if s.State == job.Queued {
			c.tell(c.tracker.Cancel(id, "cancelled by "+by))
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// standings is where the job stands now.
func (c *course) standings() map[salt.MinionID]job.Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tracker.Standings()
}

// send sends the job to minions, and notes who is not there.
func (c *course) send(ids []salt.MinionID) {
	there := make([]salt.MinionID, 0, len(ids))
	c.mu.Lock()
	for _, id := range ids {
		ready, seen := c.m.fleet.Connected(id)
		if !ready {
			c.away(id, fleet.LastSeen(seen))
			continue
		}
		c.tracker.Sent(id, time.Now())
		there = append(there, id)
	}
	c.mu.Unlock()
	parts, err := c.seal()
	if err != nil {
		c.m.log.Error("job not sent", "jid", c.plan.Start.JID, "err", err)
		return // those that it was not sent to are given up as silent
	}
	for _, id := range there {
		subject := bus.JobSubject(id)
		for _, part := range parts {
			if err := c.m.broker.Conn().Publish(subject, part); err != nil {
				c.m.log.Error("job not sent", "jid", c.plan.Start.JID, "minion", id, "err", err)
			}
		}
	}
}

// away notes that a minion is not connected: the job waits for it, where it may.
func (c *course) away(id salt.MinionID, text string) {
	if until := c.plan.Until; c.plan.waits(id, time.Now()) {
		c.tell(c.tracker.Park(id, text+"; "+job.WaitsUntil(until), until))
		return
	}
	c.tell(c.tracker.Away(id, text))
}

// seal signs the envelope, anew when it is no longer fresh: a minion has the whole
// time of expiry to begin the job, but no more than the job may wait.
func (c *course) seal() ([][]byte, error) {
	now := c.m.steady.Now()
	if c.sealed != nil && now.Before(c.fresh) {
		return c.sealed, nil
	}
	e := c.plan.Envelope
	e.Expires = now.Add(expiry)
	sealed, err := job.Seal(&e, c.m.key)
	if err != nil {
		return nil, err
	}
	c.sealed, c.fresh = rpc.Parts(sealed), now.Add(expiry/2)
	return c.sealed, nil
}
