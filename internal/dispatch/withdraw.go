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

const (
	// withdrawPause is the pause before another attempt to withdraw a job.
	withdrawPause = time.Second
	// withdrawTime is how long the caller waits for the first one.
	withdrawTime = 5 * time.Second
)

// withdrawal undoes the start of a job of which the caller is told that it has failed. The start may be
// stored nevertheless, or be stored later, as soon as the members have a leader: nobody may then carry the
// job on. So an end of the job is stored behind it in the same journal, for whoever takes the job over
// later, and the plan is deleted. A job that another member has taken over already is left to that one, which
// may have begun it. It is used by one goroutine at a time.
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

// withdrawn is how an attempt has ended.
type withdrawn struct {
	done bool
	gone bool   // the plan is deleted for sure
	heir string // the member that has taken the job over
}

// try tries what is left to do.
func (w *withdrawal) try() withdrawn {
	member, _, err := w.holder()
	switch {
	case err != nil:
		return withdrawn{}
	case member != "" && member != w.d.Name:
		return withdrawn{done: true, heir: member}
	}
	w.recorded = w.recorded || w.d.recordStates(w.plan.jid, w.states) == nil
	w.dropped = w.dropped || w.d.dropPlan(w.plan)
	if !w.recorded || !w.dropped {
		return withdrawn{}
	}
	_, there, err := w.holder()
	return withdrawn{done: true, gone: err == nil && !there}
}

// holder returns the member that has the plan, "" for a single master, and whether there is a plan.
func (w *withdrawal) holder() (member string, there bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.d.ctx), storeTime)
	defer cancel()
	e, err := w.d.plans.find(ctx, w.plan.jid, w.plan.table)
	if err != nil || e.Value == nil {
		return "", false, err
	}
	h, err := holderOf(e.Value)
	return h.Member, true, err
}

// undo withdraws a job that could not be started because of err, and returns the error for the caller.
// begun is whether its start may be stored, stored whether it is. Until the job is withdrawn, this member
// does not take it over.
func (p *plan) undo(d *Dispatcher, begun, stored bool, err error) error {
	jid := p.Start.JID
	if !begun { // nobody carries on a plan without a start
		if s := p.stale(); !d.dropPlan(s) {
			d.dropSoon(s)
		}
		d.jobs.setStarting(jid, false)
		return err
	}
	w, first := p.withdrawal(d), make(chan withdrawn, 1)
	d.wg.Go(func() {
		for {
			how := w.try()
			if how.done {
				d.jobs.setStarting(jid, false)
			}
			select {
			case first <- how:
			default: // nobody waits for it any more
			}
			if how.done || !backoff.Sleep(d.ctx, withdrawPause) {
				return
			}
		}
	})
	late := time.NewTimer(withdrawTime)
	defer late.Stop()
	select {
	case how := <-first:
		switch {
		case how.heir != "" && stored:
			var taken *rpc.Error
			if errors.As(errTaken(how.heir, jid), &taken) { // it runs: whoever sends it again may have it run twice
				unsure := *taken
				unsure.Unsure = true
				return &unsure
			}
		case how.heir != "":
			return w.unsure(err, how.heir+" then carries it on")
		case how.gone:
			return err
		}
	case <-late.C:
	}
	return w.unsure(err, "is withdrawn as soon as that is possible")
}

// unsure is err for the caller of a job that may not be withdrawn yet. then is what happens to it.
func (w *withdrawal) unsure(err error, then string) error {
	jid := w.plan.jid
	var known *rpc.Error
	if !errors.As(err, &known) {
		w.d.Log.Error("a job is not started", "jid", jid, "err", err)
		known = rpc.Errorf(rpc.Unavailable, "the job is not started, since it could not be remembered")
	}
	e := *known
	e.Text += "; job " + string(jid) + " may be stored nevertheless, and " + then
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
