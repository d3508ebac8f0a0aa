package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// storePlan stores the plan as durably as the job's start: a job without its plan would never
// finish. In a cluster it then belongs to the present lease of this member.
func (d *Dispatcher) storePlan(ctx context.Context, p *plan, batch *job.Batch) error {
	p.table = d.plans.name
	if d.Leases != nil {
		return relay{d}.holdNew(ctx, p, batch)
	}
	b, err := p.encode(batch)
	if err != nil {
		return err
	}
	return d.plans.own.Keep(ctx, string(p.Start.JID), b)
}

// dropPlan deletes a plan, unless another member has taken it over since that revision.
func (d *Dispatcher) dropPlan(p stalePlan) (dropped bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), storeTime)
	defer cancel()
	err := d.plans.remove(ctx, p)
	if err != nil {
		d.throttle.Log(d.Log, slog.LevelError, "plan", 5, "the plan of a job that has ended is not deleted yet", "jid", p.jid, "err", err)
	}
	return err == nil
}

// The plans of ended jobs are deleted together, after dropAfter or when there are maxEnded of
// them. If the deleted plan is the only one, the store makes another file, which for a quick
// job would be most of the master's work. Plans that remain after a kill are recognised by the
// next start as those of ended jobs.
const (
	dropAfter = time.Second
	maxEnded  = 256
)

// ended are jobs whose plans are to be deleted.
type ended struct {
	mu    sync.Mutex
	plans []stalePlan
	full  chan struct{} // there are maxEnded
}

// stalePlan is the plan of a job that has ended, and its revision in its table.
type stalePlan struct {
	jid      salt.JID
	table    string
	revision uint64
}

// stale is the plan when its job has ended.
func (p *plan) stale() stalePlan { return stalePlan{p.Start.JID, p.table, p.revision} }

func newEnded() *ended { return &ended{full: make(chan struct{}, 1)} }

// add adds a job and returns how many there are.
func (e *ended) add(p stalePlan) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plans = append(e.plans, p)
	if len(e.plans) == maxEnded {
		select {
		case e.full <- struct{}{}:
		default: // earlier ones may be being deleted now
		}
	}
	return len(e.plans)
}

func (e *ended) take() (plans []stalePlan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	plans, e.plans = e.plans, nil
	return plans
}

// putBack puts jobs back whose plans could not be deleted. It is false if there are none, or others that
// somebody deletes.
func (e *ended) putBack(plans []stalePlan) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := len(e.plans) == 0
	e.plans = append(e.plans, plans...)
	return first && len(plans) > 0
}

// dropSoon deletes the plan of a job that has ended, together with others. Its callers are
// among the goroutines that Wait waits for.
func (d *Dispatcher) dropSoon(p stalePlan) {
	if d.ended.add(p) == 1 {
		d.wg.Go(d.dropEnded)
	}
}

// dropEnded deletes them, again after the same time as long as that fails.
func (d *Dispatcher) dropEnded() {
	t := time.NewTimer(dropAfter)
	defer t.Stop()
	for more := true; more; t.Reset(dropAfter) {
		select {
		case <-t.C:
		case <-d.ended.full:
		case <-d.ctx.Done():
		}
		var left []stalePlan
		for _, p := range d.ended.take() {
			switch {
			case d.dropPlan(p):
			case d.ctx.Err() != nil:
				return // a store that hangs must not prevent the daemon from ending
			default:
				left = append(left, p)
			}
		}
		more = d.ended.putBack(left)
	}
}

// resumeGrace is how long minions have to reconnect before a batch continues.
const resumeGrace = 10 * time.Second

// Resume continues the jobs that a stop of the master has interrupted. It waits for the journal
// as long as needed: a job that is left out would never finish. In a cluster All.TakeOver does
// that, since another member may have taken them over meanwhile.
func (d *Dispatcher) Resume(ctx context.Context) error {
	if d.Leases != nil {
		return nil
	}
	var plans []plan
	var bad error
	err := d.plans.each(ctx, func(e planned) {
		p, err := readPlan(e.Value)
		if err != nil {
			bad = fmt.Errorf("plan of job %s: %w", e.Key, err)
			return
		}
		p.table = e.table
		plans = append(plans, p)
	})
	if err != nil {
		return err
	}
	if bad != nil {
		d.Log.Error("a job cannot be resumed", "err", bad)
	}
	for _, p := range plans {
		switch err := d.carryOn(ctx, p); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			d.Log.Error("a job cannot be resumed", "jid", p.Start.JID, "err", err)
		}
	}
	return nil
}

// noteStarted records in the plan of a job that lasts that its start is stored. Such a job may take longer than the journal
// keeps its start: without this record it would then be taken for one that was never begun. If this fails, carryOn does
// it again.
func (p *plan) noteStarted(ctx context.Context, d *Dispatcher, batch *job.Batch) {
	if p.Started || !p.lasts(batch) || p.spooled {
		return
	}
	p.Started = true
	if p.term != nil && p.term.Err() != nil {
		return // what is written with the next lease has it
	}
	once, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	var err error
	if d.Leases != nil {
		err = relay{d}.hold(once, p, batch)
	} else {
		err = d.plans.replace(once, p, batch)
	}
	if err == nil {
		return
	}
	d.Log.Warn("that a job was begun is not recorded in its plan yet", "jid", p.Start.JID, "err", err)
	if d.Leases != nil { // it may be stored, without an answer
		again, cancel := context.WithTimeout(ctx, noteTime)
		defer cancel()
		if revision, bad := (relay{d}).alreadyHeld(again, p, p.Holder); bad == nil {
			p.revision = revision
		}
	}
}

// noteTime is how long the caller of a new job waits for that.
const noteTime = 2 * time.Second

// wasBegun reports whether a job whose start is not in the journals was begun: its plan says so, or the journals have more
// of it.
func (h *history) wasBegun(p *plan) bool {
	return p.Started || len(h.states)+len(h.returned) > 0
}

// mayStart reports whether the start of a job may be under way still at the member that has accepted it.
func mayStart(jid salt.JID) bool {
	began, err := jid.Time()
	return err == nil && time.Since(began) < holdTime
}

// carryOn makes the run of a job from its plan and what the journal contains about it.
func (d *Dispatcher) carryOn(ctx context.Context, p plan) error {
	h, err := d.history(ctx, p.Start.JID)
	gone := rpc.CodeOf(err) == rpc.NotFound // its start
	if gone && d.Leases != nil && mayStart(p.Start.JID) {
		return err // a server may have been asked that led before, and lacks the newest events
	}
	if gone && !h.wasBegun(&p) { // nobody was told about it
		d.Log.Warn("a job is not carried on: it was never begun, or the journal has nothing of it any more", "jid", p.Start.JID, "user", p.Envelope.User)
		d.dropPlan(p.stale())
		return nil
	}
	if err != nil && !gone {
		return err
	}
	p.Metadata = h.load.Metadata.V
	now := time.Now()
	r := newRun(d, p, nil, now)
	r.lacking = gone
	h.noteReturned(r.job)
	if !gone {
		h.describe(r)
	}
	reached := 0 // how many have had their turn at least, if the start is gone
	if gone && p.Start.Batch {
		reached = h.reached(&p)
	}
	var rest []salt.MinionID // minions that it was not sent to
	for i, id := range slices.Concat(p.Start.Minions, p.Start.Missing) {
		s := h.standing(id)
		if gone && s.State == job.Sent {
			s = guess(&p, i, reached, now)
		}
		if s.State == job.Sent || s.State == job.Queued && s.Until.IsZero() {
			rest = append(rest, id)
		}
		r.tracker.Restore(id, s, now.Add(d.grace))
	}
	if r.tracker.Finished() {
		d.dropPlan(p.stale())
		return nil
	}
	if r.batch, err = job.NewBatch(p.Batch, p.Start.Minions); err != nil {
		return err
	}
	r.plan.noteStarted(ctx, d, r.batch)
	if r.batch != nil {
		r.batch.Resume(rest, h.standings(p.Start.Minions))
		for _, id := range rest {
			r.tracker.Hold(id)
		}
	} else if p.lasts(nil) {
		for _, id := range rest {
			r.away(id, r.interrupted()+" before the minion had the job")
		}
	}
	// The others are asked when they reconnect, and those that are connected to another member
	// at once.
	r.doubt(now)
	if gone {
		d.Log.Warn("the journal has no longer the start of a job: it is carried on from its plan", "jid", p.Start.JID)
	}
	d.Log.Info("job resumed", "jid", p.Start.JID, "minions", len(rest))
	d.jobs.add(r)
	d.wg.Go(func() {
		r.askAgain(now)
		if r.batch == nil || backoff.Sleep(d.ctx, d.grace) {
			r.run()
		}
	})
	return nil
}

// adopt makes a run for a job that a minion still works on although this master, after a
// restart, has no run for it. It returns nil if that is not possible, and in a cluster for a job
// that has a plan: it is still to be taken over with that, which a run without its batch would prevent.
func (d *Dispatcher) adopt(ctx context.Context, jid salt.JID) *Run {
	d.jobs.adopting.Lock()
	defer d.jobs.adopting.Unlock()
	if r := d.jobs.running(jid); r != nil {
		return r
	}
	member, err := relay{d}.holder(ctx, jid)
	var h *history
	if err == nil && member == "" {
		h, err = d.history(ctx, jid)
	}
	switch {
	case err != nil:
		d.Log.Warn("job not followed", "jid", jid, "err", err)
		return nil
	case member != "":
		return nil
	}
	p, now := h.load.plan(), time.Now()
	r := newRun(d, p, nil, now)
	h.noteReturned(r.job)
	for _, id := range slices.Concat(p.Start.Minions, p.Start.Missing) {
		r.tracker.Restore(id, h.standing(id), now)
	}
	d.jobs.add(r)
	d.wg.Go(r.run)
	return r
}
