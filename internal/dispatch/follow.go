package dispatch

import (
	"context"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// follow sends what has happened to a job, then what happens, until no more is expected for
// now. The caller has decided that the principal may see it.
func (d *Dispatcher) follow(ctx context.Context, r *rpc.Request, jid salt.JID) error {
	var w *watcher
	if run := d.jobs.running(jid); run != nil {
		w = run.watch() // before the journal is read, so that no update is missed
		defer w.close()
	}
	h, err := d.history(ctx, jid)
	if err != nil {
		return err
	}
	start := job.Start{JID: jid, Minions: h.load.Minions, Missing: h.load.Missing}
	if err := r.Send(ctx, start); err != nil {
		return err
	}
	if err := d.replayReturns(ctx, r, jid); err != nil {
		return err
	}
	states := h.states
	if w != nil {
		states = w.run.standings()
	}
	for _, id := range slices.Concat(h.load.Minions, h.load.Missing) {
		if s, ok := states[id]; ok && h.returned[id] == "" && !s.State.Returned() {
			if err := r.Send(ctx, job.Update{ID: id, Report: job.Report{State: s.State, Text: s.Text}}); err != nil {
				return err
			}
		}
	}
	if w == nil {
		return nil
	}
	return w.batches(ctx, func(list []update) error {
		list = slices.DeleteFunc(list, func(t update) bool { return t.State.Returned() && h.returned[t.ID] != "" })
		return d.send(ctx, r, true, list)
	})
}

// replayReturns sends the stored returns.
func (d *Dispatcher) replayReturns(ctx context.Context, r *rpc.Request, jid salt.JID) error {
	return relay{d}.stored(ctx, jid, func(u job.Update) error {
		b, err := u.Append(nil)
		if err != nil {
			return err
		}
		return r.SendRaw(ctx, b)
	})
}

// stored calls f for each stored return of a job. One that two members have stored, because one
// of them took the other for gone, counts once.
func (d relay) stored(ctx context.Context, jid salt.JID, f func(job.Update) error) error {
	seen := map[salt.MinionID]bool{}
	return d.Journals.Read(ctx, journal.Query{Subjects: []string{event.JobSubject(jid, "ret")}, Whole: true}, func(e event.Event) error {
		u, err := readReturn(e)
		if err != nil || seen[u.ID] {
			return err
		}
		seen[u.ID] = true
		return f(u)
	})
}

// Runs returns the unfinished jobs for which shown is true, the oldest first.
func (d *Dispatcher) Runs(shown func(*Job) bool) []job.Summary {
	var list []job.Summary
	for _, r := range d.jobs.all() {
		if !shown(r.job) {
			continue
		}
		e := &r.plan.Envelope
		list = append(list, job.Summary{
			JID: r.plan.Start.JID, User: e.User, Target: e.Target, TargetType: e.TargetType, Fun: e.Fun(), Args: r.job.args,
			Until: r.plan.Until, Internal: r.plan.Internal, Standings: r.standings(),
		})
	}
	return list
}

// Running returns an unfinished job, nil for every other one.
func (d *Dispatcher) Running(jid salt.JID) *Job {
	if r := d.jobs.running(jid); r != nil {
		return r.job
	}
	return nil
}

// Cancel withdraws a job from the minions that it was not sent to yet.
func (d *Dispatcher) Cancel(jid salt.JID, by string) ([]salt.MinionID, error) {
	r := d.jobs.running(jid)
	if r == nil {
		return nil, ErrNoneWaits(jid)
	}
	ids := r.cancel(by)
	if len(ids) == 0 {
		return nil, salt.WithHint(fmt.Errorf("job %s was sent to all its minions: there is nothing to withdraw", jid),
			fmt.Sprintf("salt '*' saltutil.term_job %s ends it where it runs", jid))
	}
	d.Log.Info("job cancelled", "jid", jid, "user", by, "minions", len(ids))
	return ids, nil
}

// ErrNoneWaits is the error for a job that waits for no minion, or does not exist.
func ErrNoneWaits(jid salt.JID) error {
	return salt.WithHint(fmt.Errorf("job %s waits for no minion", jid), "'salt-run jobs.list_queued' lists the jobs that do")
}

// Await returns when no more is expected of a job for now.
func (d *Dispatcher) Await(ctx context.Context, jid salt.JID) error {
	r := d.jobs.running(jid)
	if r == nil {
		return nil
	}
	w := r.watch()
	defer w.close()
	return w.each(ctx, func(update) error { return nil })
}

// Revoke withdraws jobs that wait for keys that are no longer accepted.
func (d *Dispatcher) Revoke() {
	for _, r := range d.jobs.all() {
		r.revoke(d.Keys.Accepts)
	}
}
