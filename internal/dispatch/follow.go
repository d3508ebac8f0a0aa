package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// All are the jobs of all members of a cluster, as one; those of a single master are its own.
type All struct{ *Dispatcher }

// progress is the progress of an unfinished job, here or at another member.
type progress interface {
	// batches calls f with updates, first with the present states, until no more is expected for
	// now or ctx ends.
	batches(ctx context.Context, f func([]update) error) error
	close()
}

// watchJob begins to watch a job for a user; nil if it is finished.
func (a All) watchJob(ctx context.Context, user string, jid salt.JID) (progress, error) {
	if run := a.jobs.running(jid); run != nil {
		return run.watchAll(), nil
	}
	if a.Members == nil {
		return nil, nil
	}
	d := relay(a)
	member, err := d.holdsIt(ctx, jid)
	if err != nil {
		return nil, err
	}
	return d.watchElsewhere(ctx, user, jid, member)
}

// follow sends what has happened to a job, then what happens, until no more is expected for
// now. If its member is gone, it waits until another one carries the job on, and goes on there; with tells the caller is told so. The
// caller of follow has decided that the principal may see it; user is the principal's authz.Principal.Key.
func (a All) follow(ctx context.Context, r *rpc.Request, user string, jid salt.JID, tells bool) error {
	shown := map[salt.MinionID]bool{}    // the minions whose returns were sent
	w, err := a.watchJob(ctx, user, jid) // before the journal is read, so that no update is missed
	for first := true; ; first = false {
		if err == nil || hasMoved(err) && first {
			err = a.followOnce(ctx, r, jid, w, err, shown, first)
		}
		if w != nil {
			w.close()
		}
		if !hasMoved(err) {
			return err
		}
		if tells {
			if b, bad := (job.Update{Waiting: protocol.TakingOver}).Append(nil); bad != nil || r.SendRaw(ctx, b) != nil {
				return err // nobody is there any more
			}
		}
		if w, err = a.watchTaken(ctx, user, jid, err); hasMoved(err) {
			return err
		}
	}
}

// followOnce is follow as long as the job is where it is: w is its progress, nil where it has ended or, with the error gone, where
// nobody has it now.
func (a All) followOnce(ctx context.Context, r *rpc.Request, jid salt.JID, w progress, gone error, shown map[salt.MinionID]bool, first bool) error {
	h, err := a.history(ctx, jid)
	if err != nil {
		return err
	}
	if first {
		if err := r.Send(ctx, job.Start{JID: jid, Minions: h.load.Minions, Missing: h.load.Missing}); err != nil {
			return err
		}
	}
	if err := a.replayReturns(ctx, r, jid, shown); err != nil || gone != nil {
		return cmp.Or(err, gone)
	}
	if w == nil {
		return a.sendStates(ctx, r, h)
	}
	return w.batches(ctx, func(list []update) error {
		list = slices.DeleteFunc(list, func(t update) bool {
			return t.ID != "" && shown[t.ID] && (t.State.Returned() || !t.State.Final())
		})
		for _, t := range list {
			if t.ID != "" && t.State.Returned() {
				shown[t.ID] = true
			}
		}
		return a.send(ctx, r, true, list)
	})
}

// takenTime is how long another member may take to carry a job on: the claims of one that is gone end after about 15 seconds.
const takenTime = 30 * time.Second

// watchTaken is watchJob for a job whose member is gone; why is the error of that. It waits until another one carries the job on, or
// it has ended.
func (a All) watchTaken(ctx context.Context, user string, jid salt.JID, why error) (progress, error) {
	for end := time.Now().Add(takenTime); time.Now().Before(end); {
		if !backoff.Sleep(ctx, 2*pollPause) {
			return nil, context.Cause(ctx)
		}
		w, err := a.watchJob(ctx, user, jid)
		if w != nil {
			return w, nil
		}
		if err == nil { // it has ended, or whoever has just taken it does not follow it yet
			if member, bad := relay(a).holder(ctx, jid); bad == nil && member == "" {
				return nil, nil
			}
		}
	}
	return nil, why
}

// sendStates sends the recorded states of the minions that have not returned.
func (a All) sendStates(ctx context.Context, r *rpc.Request, h *history) error {
	for _, id := range slices.Concat(h.load.Minions, h.load.Missing) {
		if s, ok := h.states[id]; ok && h.returned[id] == "" && !s.State.Returned() {
			if err := r.Send(ctx, job.Update{ID: id, Report: job.Report{State: s.State, Text: s.Text}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// replayReturns sends the stored returns, but those of the minions in shown, and adds theirs.
func (a All) replayReturns(ctx context.Context, r *rpc.Request, jid salt.JID, shown map[salt.MinionID]bool) error {
	return relay(a).stored(ctx, jid, func(u job.Update) error {
		if shown[u.ID] {
			return nil
		}
		shown[u.ID] = true
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

// Runs returns the unfinished jobs for which shown is true, the oldest first: all, or the one
// with this id. What a member does not answer is left out.
func (a All) Runs(ctx context.Context, jid salt.JID, shown func(*Job) bool) []job.Summary {
	list := a.runs(jid, shown)
	if a.Members == nil || jid != "" && len(list) > 0 {
		return list
	}
	list = append(list, relay(a).runsElsewhere(ctx, jid, shown)...)
	slices.SortStableFunc(list, func(a, b job.Summary) int { return strings.Compare(string(a.JID), string(b.JID)) })
	return slices.CompactFunc(list, func(a, b job.Summary) bool { return a.JID == b.JID })
}

// runs returns those of this master.
func (d *Dispatcher) runs(jid salt.JID, shown func(*Job) bool) (list []job.Summary) {
	for _, r := range d.jobs.all() {
		if (jid == "" || jid == r.plan.Start.JID) && shown(r.job) {
			list = append(list, r.summary())
		}
	}
	return list
}

func (r *Run) summary() job.Summary {
	e := &r.plan.Envelope
	return job.Summary{
		JID: r.plan.Start.JID, User: e.User, Target: e.Target, TargetType: e.TargetType, Fun: e.Fun(), Args: r.job.args,
		Until: r.plan.Until, Internal: r.plan.Internal, Standings: r.standings(),
	}
}

// Cancel withdraws a job from the minions that it was not sent to yet.
func (a All) Cancel(ctx context.Context, jid salt.JID, by string) ([]salt.MinionID, error) {
	ids, err := a.cancelHere(jid, by)
	if err == nil || a.Members == nil || a.jobs.running(jid) != nil {
		return ids, err
	}
	d := relay(a)
	member, look := d.holdsIt(ctx, jid)
	if look != nil {
		return nil, look
	}
	if member == "" {
		return nil, err
	}
	return d.cancelElsewhere(ctx, member, jid, by)
}

func (d *Dispatcher) cancelHere(jid salt.JID, by string) ([]salt.MinionID, error) {
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

// Await returns when no more is expected of a job for now. user is who waits, see authz.Principal.Key.
func (a All) Await(ctx context.Context, user string, jid salt.JID) error {
	w, err := a.watchJob(ctx, user, jid)
	if err != nil || w == nil {
		return err
	}
	defer w.close()
	return w.batches(ctx, func([]update) error { return nil })
}

// Revoke ends jobs at minions that are away and whose keys are no longer accepted.
func (d *Dispatcher) Revoke() {
	for _, r := range d.jobs.all() {
		r.revoke(d.Keys.Accepts)
	}
}
