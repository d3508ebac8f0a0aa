package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
)

// withdrawPause is the pause before another attempt to withdraw a job.
const withdrawPause = time.Second

// withdrawal undoes the start of a job of which the caller is told that it has failed. The start may be
// stored nevertheless, or be stored later, as soon as the members have a leader: nobody may then carry the
// job on. So an end of the job is stored behind it in the same journal, for whoever has taken the job over
// meanwhile, and the plan is deleted. It is used by one goroutine at a time.
type withdrawal struct {
	d        *Dispatcher
	plan     stalePlan
	states   map[string]any
	recorded bool
	dropped  bool
}

func (p *plan) withdrawal(d *Dispatcher) *withdrawal {
	w := &withdrawal{d: d, plan: p.stale(), states: map[string]any{}}
	end := job.Standing{State: job.Cancelled, Text: "the job was not started: its start was not stored in time"}.Data()
	for _, id := range slices.Concat(p.Start.Minions, p.Start.Missing) {
		w.states[string(id)] = end
	}
	return w
}

// done tries what is left to do, and reports whether that is all.
func (w *withdrawal) done() bool {
	w.recorded = w.recorded || w.d.recordStates(w.plan.jid, w.states) == nil
	w.dropped = w.dropped || w.d.dropPlan(w.plan)
	return w.recorded && w.dropped
}

// gone reports whether the plan is deleted for sure: another member may have taken the job over, and then
// deletes it when it finds the end.
func (w *withdrawal) gone() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.d.ctx), storeTime)
	defer cancel()
	e, err := w.d.plans.find(ctx, w.plan.jid, w.plan.table)
	return err == nil && e.Value == nil
}

// undo withdraws a job that could not be started because of err, and returns the error for the caller.
// begun is whether its start may be stored. Until the job is withdrawn, this member does not take it over.
func (p *plan) undo(d *Dispatcher, begun bool, err error) error {
	jid := p.Start.JID
	if !begun { // nobody carries on a plan without a start
		if s := p.stale(); !d.dropPlan(s) {
			d.dropSoon(s)
		}
		d.jobs.setStarting(jid, false)
		return err
	}
	w := p.withdrawal(d)
	if w.done() {
		d.jobs.setStarting(jid, false)
		if w.gone() {
			return err
		}
		return w.unsure(err)
	}
	d.wg.Go(func() {
		for backoff.Sleep(d.ctx, withdrawPause) {
			if w.done() {
				d.jobs.setStarting(jid, false)
				return
			}
		}
	})
	return w.unsure(err)
}

// unsure is err for the caller of a job that may not be withdrawn yet.
func (w *withdrawal) unsure(err error) error {
	jid := w.plan.jid
	var known *rpc.Error
	if !errors.As(err, &known) {
		w.d.Log.Error("a job is not started", "jid", jid, "err", err)
		known = rpc.Errorf(rpc.Unavailable, "the job is not started, since it could not be remembered")
	}
	e := *known
	e.Text += "; job " + string(jid) + " may be stored nevertheless, and is withdrawn as soon as that is possible"
	e.Unsure = true
	return &e
}

// keepHold makes sure that this member still has a job whose start is stored now. If its lease has lapsed
// meanwhile, another member may have deleted the plan, since it has found no start.
func (p *plan) keepHold(ctx context.Context, d *Dispatcher, batch *job.Batch) error {
	if p.term == nil || p.term.Err() == nil {
		return nil
	}
	err := relay{d}.holdNew(ctx, p, batch)
	if err != nil && rpc.CodeOf(err) == rpc.Internal {
		d.Log.Error("a job is not started: its plan was changed before its start was stored", "jid", p.Start.JID, "err", err)
		return rpc.Errorf(rpc.Unavailable, "the job is not started: this member was cut off from the others before it was stored")
	}
	return err
}
