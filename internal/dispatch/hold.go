package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// In a cluster each plan names its holder: the member that carries the job on, under one of its
// leases. Whoever takes a job over writes itself into the plan, in the table of the member that has
// accepted the job, at the revision that it has read, so that only one member can. A member whose
// lease has lapsed sends nothing and records nothing until it has written itself into the plan again.

// hold stores a plan under the present lease of this member, in place of the one at its revision.
// The error is journal.ErrChanged if another member has taken the job over.
func (d relay) hold(ctx context.Context, p *plan, batch *job.Batch) error {
	holder, term, err := d.Leases.Holder(ctx)
	if err != nil {
		return fmt.Errorf("wait for a lease: %w", err)
	}
	p.Holder = holder
	b, err := p.encode(batch)
	if err != nil {
		return err
	}
	revision, err := d.plans.update(ctx, p.table, p.Start.JID, b, p.revision)
	if errors.Is(err, journal.ErrChanged) {
		revision, err = d.alreadyHeld(ctx, p, holder)
	}
	if err != nil {
		return err
	}
	p.term, p.revision = term, revision
	return nil
}

// alreadyHeld returns the revision of a plan that an earlier attempt has stored, whose answer was
// lost; otherwise the error is journal.ErrChanged.
func (d relay) alreadyHeld(ctx context.Context, p *plan, holder lease.Holder) (uint64, error) {
	e, err := d.plans.find(ctx, p.Start.JID, p.table)
	if err != nil {
		return 0, err
	}
	if now, bad := holderOf(e.Value); bad != nil || now != holder {
		return 0, journal.ErrChanged
	}
	return e.Revision, nil
}

const (
	// holdTime is how long the start of a job waits until the members have a leader.
	holdTime  = 22 * time.Second
	holdPause = 100 * time.Millisecond
)

// ready returns why a job cannot be remembered, so that it is not started; nil if it can be.
func (d relay) ready() error {
	if d.Members == nil {
		return nil
	}
	if err := d.Journal.Err(); err != nil {
		return rpc.Errorf(rpc.Unavailable, "the job is not started, since it could not be remembered: %w", err)
	}
	return nil
}

// holdNew stores the plan of a new job. During an election it waits.
func (d relay) holdNew(ctx context.Context, p *plan, batch *job.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	for {
		err := d.hold(ctx, p, batch)
		if err == nil || errors.Is(err, journal.ErrChanged) || rpc.CodeOf(err) == rpc.Usage {
			return err
		}
		if bad := d.ready(); bad != nil {
			return bad
		}
		if !backoff.Sleep(ctx, holdPause) {
			return rpc.Errorf(rpc.Unavailable, "the job is not started: the members of the cluster have no leader for %s: %v", holdTime, err)
		}
	}
}

// prepareInformed is Prepare for a caller who is told when the job has to wait for an election.
func (d relay) prepareInformed(ctx context.Context, req *rpc.Request, q protocol.Publish, who authz.Principal, may authz.Permission) (r *Run, err error) {
	if d.Members == nil || !q.Waiting {
		return d.Prepare(ctx, q, who, may)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = d.Prepare(ctx, q, who, may)
	}()
	tell := time.NewTimer(protocol.TellTime)
	defer tell.Stop()
	select {
	case <-done:
		return r, err
	case <-tell.C:
	}
	_ = req.Send(ctx, job.Start{Waiting: protocol.Electing}) // a caller who is gone is noticed later
	<-done
	return r, err
}

// holder returns the member that carries a job on, "" if it is finished.
func (d relay) holder(ctx context.Context, jid salt.JID) (string, error) {
	if d.Leases == nil {
		return "", nil
	}
	home := d.jobs.tableOf(jid)
	var err error
	if home == "" {
		err = d.plans.meet(ctx, d.Members.Others())
	}
	var e planned
	if err == nil {
		e, err = d.plans.find(ctx, jid, home)
	}
	if err != nil {
		return "", rpc.Errorf(rpc.Unavailable, "which member has job %s is not known now: %v", jid, err)
	}
	h, _ := holderOf(e.Value) // nobody for a plan that cannot be read, and for none
	return h.Member, nil
}

// lapsed returns a channel that is closed when this master must not act for the job any more,
// nil if that never happens.
func (r *Run) lapsed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plan.term == nil {
		return nil
	}
	return r.plan.term.Done()
}

// holds reports whether this master may act for the job. The caller need not hold mu.
func (r *Run) holds() bool {
	select {
	case <-r.lapsed():
		return false
	default:
		return true
	}
}

// regainPause is the pause before another attempt to write a plan.
const regainPause = time.Second

// regain waits until this member has a lease again and is still the holder of the job. It is
// false if it is not, or the master ends.
func (r *Run) regain() bool {
	r.mu.Lock()
	p := r.plan
	r.mu.Unlock()
	for {
		err := relay{r.d}.hold(r.d.ctx, &p, r.batch)
		switch {
		case err == nil:
			r.mu.Lock()
			r.plan.Holder, r.plan.term, r.plan.revision = p.Holder, p.term, p.revision
			r.doubt(time.Now())
			r.mu.Unlock()
			r.askAgain(time.Now())
			return true
		case errors.Is(err, journal.ErrChanged):
			r.leave()
			return false
		case !backoff.Sleep(r.d.ctx, regainPause):
			return false
		}
	}
}

// doubt gives minions that the job is under way on one more time to say so. The caller holds mu.
func (r *Run) doubt(now time.Time) {
	for _, id := range r.plan.Start.Minions {
		r.notify(r.tracker.Doubt(id, r.interrupted(), now.Add(r.d.grace)))
	}
}

// interrupted says what has interrupted the job.
func (r *Run) interrupted() string {
	if r.d.Leases != nil {
		return "the master that carries the job on has changed, or was cut off,"
	}
	return "the master was started anew"
}

// leave ends the run of a job that another member has taken over. Those who watch it are told.
func (r *Run) leave() {
	d, jid := relay{r.d}, r.plan.Start.JID
	ctx, cancel := context.WithTimeout(r.d.ctx, storeTime)
	defer cancel()
	member, err := d.holder(ctx, jid)
	for err != nil && backoff.Sleep(ctx, leavePause) { // an election: nobody answers
		member, err = d.holder(ctx, jid)
	}
	if !r.leaveTo(member) {
		return
	}
	d.Log.Warn("a job is carried on by another member, since this one could not renew its lease", "jid", jid, "member", member, "err", err)
	if member != "" && member != d.Name {
		d.tellStored(ctx, member, jid)
	}
}

// leavePause is the pause before the table is asked again who has a job.
const leavePause = 250 * time.Millisecond

// leaveTo ends the run, once.
func (r *Run) leaveTo(member string) bool {
	r.d.jobs.passTo(r, member)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left != nil {
		return false
	}
	r.left = errTaken(member, r.plan.Start.JID)
	for w := range r.watchers {
		w.nudge()
	}
	r.stir()
	return true
}

func (r *Run) isLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left != nil
}

// anotherMember is what a member is called of which only that is known.
const anotherMember = "another member"

// errTaken is the error for those who watch a job that another member has taken over.
func errTaken(member string, jid salt.JID) error {
	if member == "" {
		member = anotherMember
	}
	return moved{rpc.Errorf(rpc.Unavailable, "%s carries the job on, since this member could not renew its lease", member).
		WithHint("'salt-run jobs.follow %s' follows it", jid)}
}

// errRan is the error for the caller of a job that a member has begun, and may have finished, although its start has
// failed here.
func errRan(member string, jid salt.JID) error {
	return rpc.Errorf(rpc.Unavailable, "%s runs the job, or has finished it, although this member could not confirm its start", member).
		WithHint("'salt-run jobs.follow %s' shows it", jid)
}

// passTo forgets a run; messages about the job are passed to the member from now on.
func (j *jobs) passTo(r *Run, member string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.drop(r) {
		r.job.moveTo(member)
		j.remember(r.plan.Start.JID, r.job)
	}
}

// setOwner records which member has a job.
func (j *jobs) setOwner(k *Job, member string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k.moveTo(member)
}

// moveTo records which member has a job from now on: that one may store returns, also while those that are
// stored are being read here. The caller holds the lock of jobs.
func (k *Job) moveTo(member string) {
	k.owner, k.read = member, false
	k.moves++
}

// noteElsewhere is that of jobs for a job that may have been taken over: the table says by whom.
func (d relay) noteElsewhere(ctx context.Context, jid salt.JID, k *Job, ids []salt.MinionID) error {
	err := d.jobs.noteElsewhere(jid, k, ids)
	if rpc.CodeOf(err) != rpc.Denied || d.Leases == nil {
		return err
	}
	member, bad := d.holder(ctx, jid)
	switch {
	case bad != nil:
		return bad
	case member != k.owner:
		return err
	}
	if run := d.jobs.running(jid); run != nil {
		run.leave()
	}
	if old := d.jobs.find(jid); old != nil {
		d.jobs.setOwner(old, member)
	}
	return d.jobs.noteElsewhere(jid, k, ids)
}

// kindStored informs the holder of a job that returns of it were stored elsewhere.
const kindStored = "stored"

// tellStored informs it, as well as that is possible: otherwise the minions that have returned
// count as silent.
func (d relay) tellStored(ctx context.Context, member string, jid salt.JID) {
	if err := d.Members.Ask(ctx, member, kindStored, jid, nil); err != nil {
		d.Log.Warn("the member that carries a job on does not know of a return that is stored here", "jid", jid, "member", member, "err", err)
	}
}

// answerStored makes the run of a job read the returns that are stored.
func (d relay) answerStored(_ context.Context, _ string, body []byte) (any, error) {
	var jid salt.JID
	if err := json.Unmarshal(body, &jid); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	d.jobs.adopting.Lock() // one that is just taken over is there afterwards
	defer d.jobs.adopting.Unlock()
	if run := d.jobs.running(jid); run != nil {
		run.mu.Lock()
		run.unread, run.notice = true, true
		run.mu.Unlock()
		run.stir()
	}
	return nil, nil
}

// readStored takes in returns that other members have stored since the job was taken over.
func (r *Run) readStored() error {
	r.mu.Lock()
	unread := r.unread
	r.unread, r.notice = false, false
	r.mu.Unlock()
	if !unread {
		return nil
	}
	defer noteStall(r, time.Now())
	ctx, cancel := context.WithTimeout(r.d.ctx, storeTime)
	defer cancel()
	err := relay{r.d}.stored(ctx, r.plan.Start.JID, func(u job.Update) error {
		r.report(u.ID, u.Report, nil)
		return nil
	})
	if err != nil {
		r.d.throttle.Log(r.d.Log, slog.LevelWarn, "unread", 5, "the returns of a job that were stored at other members cannot be read yet", "jid", r.plan.Start.JID, "err", err)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unread = true
	}
	return err
}

// errUnconfirmed is the answer to a minion while this member does not know whether it still has
// the job: the minion sends its message again.
var errUnconfirmed = rpc.Errorf(rpc.Unavailable, "this member could not confirm yet that it still has the job")

// errMoved is the answer to a member whose message is for the one that has the job now.
var errMoved = rpc.Errorf(rpc.NotFound, "this member does not have the job any more")

// confirmed checks that this member may store a return of a job of its own: after a restart, or
// a lapse of its lease, another one may have taken the job over.
func (d relay) confirmed(ctx context.Context, k *Job, jid salt.JID) error {
	if d.Leases == nil || spooling(d).has(jid) { // a job in the spool has no plan
		return nil
	}
	if run := d.jobs.running(jid); run != nil {
		if !run.holds() {
			return errUnconfirmed
		}
		return nil
	}
	member, err := d.holder(ctx, jid)
	switch {
	case err != nil:
		return err
	case member == d.Name:
		d.jobs.awaitAdopted()
	case member != "":
		d.jobs.setOwner(k, member)
	}
	return nil
}

// awaitAdopted waits until a job that is just taken over has its run.
func (j *jobs) awaitAdopted() {
	j.adopting.Lock()
	//lint:ignore SA2001 nothing is to be done: whoever has the lock is waited for
	j.adopting.Unlock()
}

// ownJob returns a job of this member, also one that it has taken over or is taking over. For one
// that another member has, the error is errMoved; for an unknown job it is nil.
func (d relay) ownJob(ctx context.Context, jid salt.JID) (*Job, error) {
	k, err := d.lookupOwn(ctx, jid)
	if err != nil || d.jobs.running(jid) != nil {
		return k, err
	}
	member, err := d.holder(ctx, jid)
	if err != nil {
		return nil, err
	}
	own := k != nil && d.jobs.ownerOf(k) == ""
	switch {
	case member == d.Name && member != "":
		if d.jobs.awaitAdopted(); d.jobs.running(jid) != nil {
			return d.jobs.find(jid), nil
		}
		if !own {
			return nil, errUnconfirmed
		}
	case member != "":
		if k != nil {
			d.jobs.setOwner(k, member)
		}
		return nil, errMoved
	case k != nil && !own:
		return nil, errMoved
	}
	return k, nil
}

// holdsIt returns the member to ask about an unfinished job that has no run here, "" if the job is
// finished. If that member is gone, the error says that another one takes the job over.
func (d relay) holdsIt(ctx context.Context, jid salt.JID) (string, error) {
	if d.Leases == nil {
		k, err := d.Lookup(ctx, jid)
		if err != nil || k == nil {
			return "", err
		}
		return d.jobs.ownerOf(k), nil
	}
	member, err := d.holder(ctx, jid)
	switch {
	case err != nil, member == "", member == d.Name:
		return "", err
	case !slices.Contains(d.Members.Others(), member):
		return "", errLeft(member, jid)
	}
	return member, nil
}
