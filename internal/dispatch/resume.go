package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// plansTable holds the plans of the jobs of which something is expected.
const plansTable = "plans"

// maxPlan is the largest plan in bytes that a table takes. A larger one of a job that
// does not last is kept without what is needed to send it again.
const maxPlan = 900 << 10

// storePlan survives what the job's start survives: a job that is known without its plan
// would never reach a final state.
func (d *Dispatcher) storePlan(ctx context.Context, p *plan, batch *job.Batch) error {
	b, err := json.Marshal(p)
	if err == nil && len(b) > maxPlan && !p.lasts(batch) {
		less := *p
		less.Keys, less.Envelope.Commands, less.Envelope.ReturnKwargs = nil, nil, value.Value{}
		for _, c := range p.Envelope.Commands {
			less.Envelope.Commands = append(less.Envelope.Commands, job.Command{Function: c.Function})
		}
		b, err = json.Marshal(&less)
	}
	if err != nil {
		return err
	}
	return d.plans.Keep(ctx, string(p.Start.JID), b)
}

func (d *Dispatcher) dropPlan(jid salt.JID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), storeTime)
	defer cancel()
	if err := d.plans.Remove(ctx, string(jid)); err != nil {
		d.Log.Error("the plan of a job that has ended is not dropped", "jid", jid, "err", err)
	}
}

// resumeGrace is what minions get to come back before a batch goes on.
const resumeGrace = 10 * time.Second

// Resume carries on the jobs that a stop of the master has interrupted.
func (d *Dispatcher) Resume() error {
	ctx, cancel := context.WithTimeout(d.ctx, time.Minute)
	defer cancel()
	var plans []plan
	var bad error
	err := d.plans.Each(ctx, func(jid string, b []byte) {
		var p plan
		if err := json.Unmarshal(b, &p); err != nil {
			bad = fmt.Errorf("plan of job %s: %w", jid, err)
			return
		}
		plans = append(plans, p)
	})
	if err != nil {
		return err
	}
	if bad != nil {
		d.Log.Error("a job is not carried on", "err", bad)
	}
	for _, p := range plans {
		if err := d.carryOn(ctx, p); err != nil {
			d.Log.Error("a job is not carried on", "jid", p.Start.JID, "err", err)
		}
	}
	return nil
}

// carryOn makes the run of a job from its plan and what the journal has of it.
func (d *Dispatcher) carryOn(ctx context.Context, p plan) error {
	h, err := d.history(ctx, p.Start.JID)
	if rpc.CodeOf(err) == rpc.NotFound { // nobody was told of it
		d.dropPlan(p.Start.JID)
		return nil
	}
	if err != nil {
		return err
	}
	p.Metadata = h.load.Metadata.V
	now := time.Now()
	r := newRun(d, p, nil, now)
	var rest []salt.MinionID // whom it was not sent to
	for _, id := range slices.Concat(p.Start.Minions, p.Start.Missing) {
		s := h.standing(id)
		if s.State == job.Sent || s.State == job.Queued && s.Until.IsZero() {
			rest = append(rest, id)
		}
		r.tracker.Restore(id, s, now.Add(resumeGrace))
	}
	if r.batch, err = job.NewBatch(p.Batch, p.Start.Minions); err != nil {
		return err
	}
	if r.batch != nil {
		r.batch.Resume(rest, h.standings(p.Start.Minions))
		for _, id := range rest {
			r.tracker.Hold(id)
		}
	} else if p.lasts(nil) {
		for _, id := range rest {
			r.away(id, "the master was started anew before the minion had the job")
		}
	}
	// The others are asked when they come back.
	for _, id := range p.Start.Minions {
		r.notify(r.tracker.Doubt(id, now.Add(resumeGrace)))
	}
	d.Log.Info("job carried on", "jid", p.Start.JID, "minions", len(rest))
	d.jobs.add(r)
	d.wg.Go(func() {
		if r.batch == nil || backoff.Sleep(d.ctx, resumeGrace) {
			r.run()
		}
	})
	return nil
}

// adopt makes a run for a job that a minion still works on, though the master
// knows nothing of it: it was started anew. Nil if that cannot be done.
func (d *Dispatcher) adopt(ctx context.Context, jid salt.JID) *Run {
	d.jobs.adopting.Lock()
	defer d.jobs.adopting.Unlock()
	if r := d.jobs.running(jid); r != nil {
		return r
	}
	h, err := d.history(ctx, jid)
	if err != nil {
		d.Log.Warn("job not followed", "jid", jid, "err", err)
		return nil
	}
	p, now := h.load.plan(), time.Now()
	r := newRun(d, p, nil, now)
	for _, id := range slices.Concat(p.Start.Minions, p.Start.Missing) {
		r.tracker.Restore(id, h.standing(id), now)
	}
	d.jobs.add(r)
	d.wg.Go(r.run)
	return r
}
