package dispatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
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
// later, and the plan is deleted. A job that another member has begun gets no end. One that has only taken
// it over may not find the start, and delete the plan before the start is stored: until either is known, the
// withdrawal goes on. It is used by one goroutine at a time.
type withdrawal struct {
	d        *Dispatcher
	plan     stalePlan
	end      job.Standing
	ids      []salt.MinionID
	passed   bool // another member has taken the job over
	recorded bool
	dropped  bool
}

func (p *plan) withdrawal(d *Dispatcher) *withdrawal {
	return &withdrawal{
		d: d, plan: p.stale(), ids: slices.Concat(p.Start.Minions, p.Start.Missing),
		end: job.Standing{State: job.Cancelled, Text: "the job was not started: its start was not stored in time"},
	}
}

// withdrawn is how an attempt has ended.
type withdrawn struct {
	done bool   // nothing is left to do
	gone bool   // this member has deleted the plan, and nobody has begun the job
	ran  bool   // another member has begun the job
	heir string // the member that has taken the job over
}

// try tries what is left to do.
func (w *withdrawal) try() withdrawn {
	member, there, err := w.holder()
	if err != nil {
		return withdrawn{}
	}
	if there && member != "" && member != w.d.Name {
		w.passed = true // it stays so if this member takes the job over from that one
	}
	if w.passed || !there { // a plan is also gone when an heir has finished the job
		switch ran, err := w.ran(); {
		case ran:
			return withdrawn{done: true, ran: true, heir: cmp.Or(member, anotherMember)}
		case there:
			return withdrawn{heir: member}
		case err != nil:
			return withdrawn{}
		}
	}
	w.recorded = w.recorded || w.record() == nil
	w.dropped = w.dropped || w.d.dropPlan(w.plan)
	if !w.recorded || !w.dropped {
		return withdrawn{}
	}
	if !there {
		return withdrawn{done: true}
	}
	return w.left()
}

// left looks whether another member has taken the job over while it was withdrawn: that one may have read
// the journals before the end was there, and its plan stays.
func (w *withdrawal) left() withdrawn {
	member, there, err := w.holder()
	switch {
	case err != nil || there && (member == "" || member == w.d.Name):
		return withdrawn{done: true}
	case there:
		return withdrawn{done: true, heir: member}
	}
	ran, err := w.ran()
	if ran {
		return withdrawn{done: true, ran: true, heir: anotherMember}
	}
	return withdrawn{done: true, gone: err == nil}
}

// record stores the end.
func (w *withdrawal) record() error {
	states := make(map[string]any, len(w.ids))
	for _, id := range w.ids {
		states[string(id)] = w.end.Data()
	}
	return w.d.recordStates(w.plan.jid, states)
}

// ran reports whether the journals have more of the job than its start and this end: a member that carries a
// job on leaves returns, or states of the minions that have not returned, before it deletes the plan.
func (w *withdrawal) ran() (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.d.ctx), storeTime)
	defer cancel()
	h, err := w.d.history(ctx, w.plan.jid)
	if err != nil && rpc.CodeOf(err) != rpc.NotFound {
		return false, err
	}
	for _, s := range h.states {
		if s != w.end {
			return true, nil
		}
	}
	return len(h.returned) > 0, nil
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
// takes it over from nobody but another member.
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
			if how.done || how.heir != "" { // if the heir is lost, this member may be the one that takes it over
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
		case how.ran || how.heir != "" && stored:
			why := errTaken(how.heir, jid)
			if how.ran {
				why = errRan(how.heir, jid)
			}
			var taken *rpc.Error
			if errors.As(why, &taken) { // whoever sends it again may have it run twice
				unsure := *taken
				unsure.Unsure = true
				return &unsure
			}
		case how.heir != "":
			return w.unsure(err, how.heir+" then carries it on, or it is withdrawn")
		case how.gone:
			return err
		case how.done: // only who has deleted the plan knows for sure that nobody has found it
			return w.unsure(err, "is withdrawn, unless another member has run it")
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
// meanwhile, another member may have deleted the plan, since it has found no start, or has finished the job.
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
