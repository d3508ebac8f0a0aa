package dispatch

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Run carries one job from its start to its end. It goes on when the user who started it is
// gone. It sends the job to each minion when it is its turn, follows messages, and records the
// state of the job.
type Run struct {
	d    *Dispatcher
	plan plan
	job  *Job
	wake chan struct{}

	mu       sync.Mutex // guards the next fields
	tracker  *job.Tracker
	batch    *job.Batch // nil if all begin at once
	due      []salt.MinionID
	dirty    map[salt.MinionID]bool // minions whose latest state is not in the journal
	watchers map[*watcher]bool
	settled  bool
	left     error // another member has taken the job over
	lacking  bool  // the journals have no longer all that became of the job, but not its start
	unread   bool  // returns were stored by other members since the journals were read
	notice   bool  // another member has said so since that was tried
	stalled  bool  // the store waits for an election, or has done so since the timeouts were looked at
	stalls   int   // how often that has moved the timeouts
	unstored int   // bytes of long returns that were shown and are not in the journal yet

	sealed []byte // the envelope; used by send
	fresh  time.Time
}

func newRun(d *Dispatcher, p plan, batch *job.Batch, now time.Time) *Run {
	ids := slices.Concat(p.Start.Minions, p.Start.Missing)
	r := &Run{
		d: d, plan: p, job: jobOf(&p), wake: make(chan struct{}, 1), batch: batch,
		tracker: job.NewTracker(ids, p.Timeout.Duration(), now), dirty: map[salt.MinionID]bool{}, watchers: map[*watcher]bool{},
	}
	r.tracker.Wait(p.Until)
	return r
}

// noKey is why a job is not sent to a minion that was named.
const noKey = "no accepted key has this id"

// Begin sends the job to the minions whose turn it is, and carries it on from then on.
func (r *Run) Begin() {
	r.mu.Lock()
	for _, id := range r.plan.Start.Missing {
		text := noKey
		if !r.plan.Until.IsZero() {
			text += "; the job does not wait for it"
		}
		r.notify(r.tracker.Away(id, text))
	}
	if r.batch != nil {
		for _, id := range r.plan.Start.Minions {
			r.tracker.Hold(id)
		}
	}
	r.mu.Unlock()
	if r.batch == nil {
		r.send(r.plan.Start.Minions)
	}
	r.d.wg.Go(r.run)
}

// askAgain asks the minions that have the job, as far as is known, what became of it, after the
// job has changed hands: it is sent to them again. One that has it already says so and goes on.
// Minions that are not connected are asked when they are.
func (r *Run) askAgain(now time.Time) {
	p := &r.plan
	if r.d.Leases == nil || !p.lasts(r.batch) && now.After(p.Began.Add(expiry)) {
		return
	}
	var ids []salt.MinionID
	for id, key := range r.d.Keys.Tokens(p.Start.Minions) {
		connected, _ := r.d.Fleet.Connected(id)
		switch {
		case !connected:
		case r.open(id) && key == p.Keys[id]:
			ids = append(ids, id)
		default:
			r.back(id, key)
		}
	}
	if slices.Sort(ids); len(ids) > 0 {
		r.send(ids)
	}
}

// run handles what happens by time.
func (r *Run) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	record := time.Time{} // when changes are recorded next
	var reading reading
	for {
		if r.isLeft() || !r.holds() && !r.regain() {
			return
		}
		due, next, finished := reading.step(r)
		switch {
		case len(due) > 0:
			r.send(due)
			continue
		case finished:
			if r.recordLast() {
				r.end()
				return
			}
			if r.d.ctx.Err() != nil {
				return // the next start finds the plan
			}
			continue // perhaps with another lease
		}
		if record, next = r.keep(record, next); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.lapsed():
		case <-r.d.ctx.Done():
			r.record()
			return
		}
	}
}

// step is look, as soon as the run knows the returns that other members have stored.
func (u *reading) step(r *Run) (due []salt.MinionID, next time.Time, finished bool) {
	if !u.done(r) { // who seems silent may have returned elsewhere: nobody is told anything by time
		return r.takeDue(), u.again, false
	}
	due, next, finished = r.look(time.Now())
	if u.without { // a job that only waits for minions would not try again for days
		next = earlier(next, u.again)
	}
	return due, next, finished
}

// reading is what a run knows about returns that other members have stored, while they cannot be read. The zero
// value is ready.
type reading struct {
	since, again time.Time
	without      bool // the run goes on without them
}

// done reads them, unless that was tried a moment ago, and reports whether the run can go on. After lastTime it
// does without them, and tries to read them each lastTime, and when another member says that it has stored one:
// what is given up in between would be the minion that has returned.
func (u *reading) done(r *Run) bool {
	if time.Now().Before(u.again) && !u.noticed(r) {
		return u.without
	}
	err := r.readStored()
	if err == nil {
		*u = reading{}
		return true
	}
	pause := recordEvery
	switch {
	case u.since.IsZero():
		u.since = time.Now()
	case time.Since(u.since) >= lastTime:
		if !u.without {
			r.d.Log.Error("the returns of a job that were stored at other members cannot be read: it goes on without them", "jid", r.plan.Start.JID, "err", err)
		}
		u.without, pause = true, lastTime
	}
	u.again = time.Now().Add(pause)
	return u.without
}

// noticed reports whether a run that goes on without returns has notice of another one.
func (u *reading) noticed(r *Run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return u.without && r.notice
}

// takeDue returns the minions whose turn has come.
func (r *Run) takeDue() (due []salt.MinionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	due, r.due = r.due, nil
	return due
}

// look handles what is due at now. It returns the minions whose turn has come, when to look
// again, and whether the job is finished.
func (r *Run) look(now time.Time) (due []salt.MinionID, next time.Time, finished bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	given, next := tick(r, now)
	for i := range given {
		r.notify(&given[i])
	}
	due, r.due = r.due, nil
	if r.batch != nil {
		turn, again := r.batch.Next(now)
		if len(turn) > 0 {
			r.show(update{Update: job.Update{Begun: turn}})
		}
		due, next = append(due, turn...), earlier(next, again)
	}
	r.release()
	return due, next, r.tracker.Finished()
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// recordEvery is how often the state of a job on minions that have not returned is recorded. A
// quicker job leaves only its returns.
const recordEvery = time.Second

// keep records changes if it is time, and returns the next times.
func (r *Run) keep(record, next time.Time) (time.Time, time.Time) {
	now := time.Now()
	if !record.IsZero() && !record.After(now) {
		r.record()
		record = time.Time{}
	}
	switch {
	case !r.changed():
		return time.Time{}, next
	case record.IsZero():
		record = now.Add(recordEvery)
	}
	return record, earlier(next, record)
}

// changed reports whether something is not recorded.
func (r *Run) changed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.dirty) > 0
}

// lastTime is how long it is tried to record the last states of a job: much longer than an election.
const lastTime = time.Minute

// recordLast records the last states of a job, before its plan is deleted. It is false if that was not
// done because the lease of this member has lapsed, or the master ends.
func (r *Run) recordLast() bool {
	for begun := time.Now(); ; {
		r.record()
		switch {
		case !r.changed():
			return true
		case !r.holds():
			return false
		case time.Since(begun) > lastTime: // what is lost was logged
			return true
		case !backoff.Sleep(r.d.ctx, recordEvery):
			return false
		}
	}
}

// record writes into the journal what has changed since the last record.
func (r *Run) record() {
	if !r.holds() {
		return
	}
	r.mu.Lock()
	minions := map[string]any{}
	all := r.tracker.Standings()
	for id := range r.dirty {
		minions[string(id)] = all[id].Data()
	}
	clear(r.dirty)
	r.mu.Unlock()
	defer noteStall(r, time.Now())
	if r.d.recordStates(r.plan.Start.JID, minions) == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.tracker.Standings() {
		if minions[string(id)] != nil && !s.State.Returned() {
			r.dirty[id] = true
		}
	}
}

// recordStates stores the state of a job on some minions. It logs the error.
func (d *Dispatcher) recordStates(jid salt.JID, minions map[string]any) error {
	if len(minions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), storeTime)
	defer cancel()
	data := map[string]any{"jid": string(jid), "minions": minions}
	err := error(nil)
	if s := (spooling{d}); s.has(jid) {
		err = s.recordStates(jid, data)
	} else {
		_, err = d.Events.Store(ctx, stateTag(jid), data, "")
	}
	if err != nil {
		d.throttle.Log(d.Log, slog.LevelError, "state", 5, "the state of a job is not recorded", "jid", jid, "err", err)
	}
	return err
}

func stateTag(jid salt.JID) string { return "salt/job/" + string(jid) + "/state" }

// end is called when no more is expected, and everything is recorded.
func (r *Run) end() {
	r.d.jobs.forget(r)
	if !r.plan.spooled {
		r.d.dropSoon(r.plan.stale())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release()
}

// release tells watchers that no more is expected for now.
func (r *Run) release() {
	if r.settled = r.tracker.Settled(); r.settled {
		for w := range r.watchers {
			w.nudge()
		}
	}
}

// notify passes an update on, unless it is nil. The caller holds mu; the same goes for show.
func (r *Run) notify(u *job.Update) {
	if u != nil {
		r.show(update{Update: *u})
	}
}

func (r *Run) show(t update) {
	for w := range r.watchers {
		w.push(t)
	}
	if t.ID == "" {
		return
	}
	clean := len(r.dirty) == 0
	if t.State.Returned() {
		delete(r.dirty, t.ID) // the return contains it
	} else {
		r.dirty[t.ID] = true
	}
	if r.batch != nil && (t.State.Final() || t.State == job.Queued) {
		state := t.State
		if r.lacking && state == job.Silent {
			state = job.NotConnected // no failure: it may have returned long ago
		}
		r.batch.Ended(t.ID, state, time.Now())
		r.stopBatch()
		r.stir()
	}
	if clean && len(r.dirty) > 0 || r.tracker.Settled() {
		r.stir()
	}
}

// stopBatch ends a batch in which more minions have failed than allowed.
func (r *Run) stopBatch() {
	if !r.batch.Spent() {
		return
	}
	text := "the batch was stopped: more minions failed than may"
	if r.plan.Batch.MaxFail == "0" {
		text = "Batch run stopped due to failhard"
	}
	for _, id := range r.batch.Clear() {
		r.notify(r.tracker.Cancel(id, text))
	}
}

// stir makes run look again.
func (r *Run) stir() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// report handles a minion's message. Seqs are the sequences of its return in the journal.
func (r *Run) report(id salt.MinionID, rep job.Report, seqs []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.tracker.Report(id, rep, time.Now())
	if u == nil {
		return
	}
	if len(seqs) > 0 {
		// Each watcher reads it from the journal; the copy in memory stays small.
		u.Return.V, u.Retcode.V, u.Success.V = nil, nil, nil
	}
	r.show(update{Update: *u, seqs: seqs})
}

// lost handles the end of a minion's connection. A job that waits for minions goes on waiting
// for one that may not have received it: the minion runs it once, however often it is sent.
func (r *Run) lost(id salt.MinionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plan.waits(id, time.Now()) && r.tracker.Unheard(id) {
		r.away(id, "the connection was lost as the job was sent")
		r.notify(revokedAt(r, id, r.d.Keys.Accepts))
		return
	}
	u := r.tracker.Lost(id, time.Now())
	r.notify(cmp.Or(revokedAt(r, id, r.d.Keys.Accepts), u)) // that may be why, and revoke may have been called before
}

// back handles that a minion is connected again, with this key.
func (r *Run) back(id salt.MinionID, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.tracker.Parked(id) {
		return
	}
	if r.plan.Keys[id] != key {
		r.notify(r.tracker.Cancel(id, "the minion has another key than when the job was left for it"))
		return
	}
	r.due = append(r.due, id)
	r.stir()
}

// open reports whether the job was sent to a minion and is not finished there.
func (r *Run) open(id salt.MinionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tracker.Open(id)
}

// missed handles the answer of a minion, with this key, that it never received the job: the job
// is sent again, unless it is too late.
func (r *Run) missed(id salt.MinionID, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := &r.plan, time.Now()
	switch {
	case !r.tracker.Open(id):
	case p.Keys[id] == "":
		r.notify(r.tracker.Away(id, "the job did not reach it, and is too large to be kept and sent again"))
	case p.Keys[id] != key:
		r.notify(r.tracker.Away(id, "the job did not reach it, and it has another key now"))
	case !p.lasts(r.batch) && now.After(p.Began.Add(expiry)):
		r.notify(r.tracker.Report(id, job.Report{State: job.Expired, Text: "the job did not reach it in time"}, now))
	default:
		r.d.Log.Info("job sent again: it did not reach the minion", "jid", p.Start.JID, "minion", id)
		r.tracker.Again(id, now)
		r.due = append(r.due, id)
		r.stir()
	}
}

// revoke ends the job at the minions that are away and whose key is no longer accepted.
func (r *Run) revoke(accepted func(id salt.MinionID, key string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.plan.Keys {
		r.notify(revokedAt(r, id, accepted))
	}
}

// revokedAt is revoke for one minion, if its key is known. The caller holds mu.
func revokedAt(r *Run, id salt.MinionID, accepted func(id salt.MinionID, key string) bool) *job.Update {
	if key := r.plan.Keys[id]; key != "" && !accepted(id, key) {
		return r.tracker.Revoked(id, "its key is no longer accepted")
	}
	return nil
}

// cancel withdraws the job from all minions that it was not sent to, and returns them, sorted.
func (r *Run) cancel(by string) []salt.MinionID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.batch != nil {
		r.batch.Clear()
	}
	var ids []salt.MinionID
	for id, s := range r.tracker.Standings() {
		if s.State == job.Queued {
			r.notify(r.tracker.Cancel(id, "cancelled by "+by))
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// standings returns the present state of the job.
func (r *Run) standings() map[salt.MinionID]job.Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tracker.Standings()
}

// send sends the job to minions, and notes which ones are not connected.
func (r *Run) send(ids []salt.MinionID) {
	if !r.holds() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.due = append(r.due, ids...)
		return
	}
	there := make([]salt.MinionID, 0, len(ids))
	r.mu.Lock()
	for _, id := range ids {
		ready, seen := r.d.Fleet.Connected(id)
		switch {
		case !ready:
			r.away(id, lastSeen(seen, r.d.Name, r.d.Fleet.SeenAt(id)))
			continue
		case r.unheardOf(id):
			r.away(id, "it is connected to another member, which does not get the job without the quorum")
			continue
		}
		if r.tracker.Sent(id, time.Now()) {
			there = append(there, id)
		}
	}
	r.mu.Unlock()
	there = r.handOn(there)
	if len(there) == 0 {
		return
	}
	sealed, err := r.seal()
	if err != nil {
		r.d.Log.Error("job not sent", "jid", r.plan.Start.JID, "err", err)
		return // those that did not get it are given up as silent
	}
	for _, id := range there {
		if err := rpc.Publish(r.d.Conn, bus.JobSubject(id), sealed, r.d.Fleet.Framed(id)); err != nil {
			r.d.Log.Error("job not sent", "jid", r.plan.Start.JID, "minion", id, "err", err)
		}
	}
}

// lastSeen returns a text about when a disconnected minion was last connected, and where: at this host, or in a cluster
// at the member at, if that is known. self is the name of this member, "" for a single master.
func lastSeen(seen time.Time, self, at string) string {
	never := "it was never seen in this cluster"
	if self == "" {
		var err error
		if at, err = os.Hostname(); err != nil {
			at = "this master"
		}
		never = "it was never seen at " + at
	}
	text := "last seen " + seen.Format("2006-01-02 15:04:05")
	switch {
	case seen.IsZero():
		return never
	case at == "":
		return text
	}
	return text + " at " + at
}

// away records that a minion is not connected: the job waits for it, if it may.
func (r *Run) away(id salt.MinionID, text string) {
	if r.d.Standby != nil && r.d.Standby() {
		text += "; another master is at work on the NATS servers"
	}
	if until := r.plan.Until; r.plan.waits(id, time.Now()) {
		r.notify(r.tracker.Park(id, text+"; "+job.WaitsUntil(until), until))
		return
	}
	r.notify(r.tracker.Away(id, text))
}

// seal signs the envelope, again when it is no longer fresh: a minion has the whole time of
// expiry to begin the job, but not longer than the job may wait.
func (r *Run) seal() ([]byte, error) {
	now := r.d.Now()
	if r.sealed != nil && now.Before(r.fresh) {
		return r.sealed, nil
	}
	e := r.plan.Envelope
	e.Expires = now.Add(expiry)
	sealed, err := job.Seal(&e, r.d.Key)
	if err != nil {
		return nil, err
	}
	r.sealed, r.fresh = sealed, now.Add(expiry/2)
	return r.sealed, nil
}
