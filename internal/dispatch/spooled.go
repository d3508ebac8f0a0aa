package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// A member of a cluster that cannot store anything, since it does not reach most of the others, still
// starts jobs on the minions that are connected to it where cluster_without_quorum is run. What is
// stored of another job is in its spool, until it can be stored. There is no plan: such a job is not
// continued after a restart, and no other member takes it over. Returns are shown and not confirmed,
// so they stay in the outboxes of the minions.

// Spool has the jobs that were started while nothing could be stored, until they are stored. It is
// audit.Spool.
type Spool interface {
	// Active returns why nothing can be stored, if jobs are started nevertheless; otherwise nil.
	Active() error
	// Has reports whether a job is in it.
	Has(jid salt.JID) bool
	// Jobs returns how many jobs are in it.
	Jobs() int
	// State adds an event about a job that is in it.
	State(jid salt.JID, e event.Event) error
	// EachJob calls f for each job with the event of its start.
	EachJob(f func(jid salt.JID, e event.Event) error) error
}

// WithoutQuorum returns why nothing can be stored, if jobs are started nevertheless; otherwise nil.
func (d *Dispatcher) WithoutQuorum() error {
	if d.Spool == nil {
		return nil
	}
	return d.Spool.Active()
}

// Unstored returns how many jobs were started while nothing could be stored, and are not stored yet.
func (a All) Unstored() int {
	if a.Spool == nil {
		return 0
	}
	return a.Spool.Jobs()
}

// spooling is the part of a Dispatcher for jobs that are in the spool, and not in the journal yet.
type spooling struct{ *Dispatcher }

// has reports whether a job is one of these.
func (d spooling) has(jid salt.JID) bool { return d.Spool != nil && d.Spool.Has(jid) }

// recall makes these jobs known after a start, so that their returns are accepted
// before they are stored themselves.
func (d spooling) recall() error {
	if d.Spool == nil {
		return nil
	}
	return d.Spool.EachJob(func(jid salt.JID, e event.Event) error {
		k, err := d.jobs.load(jid, e, "", d.plans.name)
		if err == nil {
			k.spooled = true
		}
		return err
	})
}

// accept is Prepare for a request. The caller is told what it waits for.
func (d spooling) accept(ctx context.Context, req *rpc.Request, q protocol.Publish, who authz.Principal, may authz.Permission) (*Run, error) {
	if why := d.WithoutQuorum(); why != nil {
		return d.prepare(q, who, may, why)
	}
	return relay(d).prepareInformed(ctx, req, q, who, may)
}

// prepare is Prepare while nothing can be stored: why is the reason. The job and its
// permission are in the spool before Begin of the run sends it to the first minion.
func (d spooling) prepare(q protocol.Publish, who authz.Principal, may authz.Permission, why error) (*Run, error) {
	if err := check(d.Audit, q, who, may); err != nil {
		return nil, err
	}
	now := time.Now()
	p, batch, err := d.plan(q, who, may.Start(), may.Target(), now)
	if err == nil {
		err = refuseSpooled(&p, who, batch, why)
	}
	if err != nil {
		d.Audit.Note(may)
		return nil, err
	}
	p.Envelope.Reach, p.Envelope.Live = may.Reach(), true
	p.spooled, p.table, p.Start.Unstored = true, d.plans.name, why.Error()
	begun, err := p.begun(now)
	if err == nil {
		err = d.Audit.BookSpooled(may, p.Start.JID, begun, who.Operator())
	}
	if err != nil {
		return nil, err
	}
	d.Log.Warn("job without the quorum of the cluster", "jid", p.Start.JID, "fun", functionList(p.Envelope.Commands), "user", who.Name(), "target", q.Target, "minions", len(p.Start.Minions))
	r := newRun(d.Dispatcher, p, nil, now)
	d.jobs.add(r)
	return r, nil
}

// refuseSpooled refuses what is not done without the quorum.
func refuseSpooled(p *plan, who authz.Principal, batch *job.Batch, why error) error {
	what := ""
	switch {
	case batch != nil:
		what = "a batch"
	case !p.Until.IsZero():
		what = "a job that waits for minions"
	case who.Minion() != "":
		what = "a job of a minion"
	case who.Login() != nil: // whether the login is still valid cannot be known
		what = "a job of a user of external_auth"
	default:
		return nil
	}
	return rpc.Errorf(rpc.Unavailable, "the job is not started, since %s is not run without the quorum, also not with cluster_without_quorum: run: %w", what, why)
}

// begun returns the events with which a job begins: that with the bare id and the expected minions,
// as in Salt, and its start.
func (p *plan) begun(now time.Time) ([]event.Event, error) {
	bare, err := ownEvent(string(p.Start.JID), p.expected(), now)
	if err != nil {
		return nil, err
	}
	start, err := ownEvent(startTag(p.Start.JID), p.load(), now)
	return []event.Event{bare, start}, err
}

// ownEvent is an event of the master itself.
func ownEvent(tag string, data map[string]any, now time.Time) (event.Event, error) {
	b, err := value.Encode(data)
	if err != nil {
		return event.Event{}, err
	}
	return event.New(tag, b, "", now)
}

// unheardOf reports whether a minion is not asked, since it is connected to another member, which is
// not asked without the quorum. The caller holds mu.
func (r *Run) unheardOf(id salt.MinionID) bool { return r.plan.spooled && !r.d.Fleet.Here(id) }

// recordStates is that of a Dispatcher.
func (d spooling) recordStates(jid salt.JID, data map[string]any) error {
	e, err := ownEvent(stateTag(jid), data, time.Now())
	if err != nil {
		return err
	}
	return d.Spool.State(jid, e)
}

// Show shows a return from an outbox that cannot be stored now to those who watch the job. It stays in
// the outbox.
func (d *Dispatcher) Show(id salt.MinionID, jid salt.JID, m outbox.Message) {
	run := d.jobs.running(jid)
	if run == nil || !run.plan.spooled || !run.job.minions[id] {
		return
	}
	if rep, _, err := readReport(m); err == nil && rep.State.Returned() {
		run.showUnstored(id, rep, len(m.Body))
	}
}

// showSaid shows the return that a minion has told besides putting it into its outbox. It is never
// stored: what is in the outbox is.
func (d spooling) showSaid(s said, rep job.Report) error {
	run := d.jobs.running(s.JID)
	if run != nil && run.plan.spooled && rep.State.Returned() {
		rep.Live = false
		run.showUnstored(s.Minion, rep, len(s.Report))
	}
	return nil
}

// maxUnstored is how many bytes of returns that are longer than maxInline a job keeps for those who
// watch it while they cannot be read from the journal.
const maxUnstored = 16 << 20

// showUnstored passes a return of this size on to the watchers, who cannot read it from the journal.
func (r *Run) showUnstored(id salt.MinionID, rep job.Report, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.tracker.Report(id, rep, time.Now())
	if u == nil {
		return // it was shown before
	}
	switch {
	case size > maxInline && r.unstored+size > maxUnstored:
		u.State, u.Retcode.V, u.Success.V = job.Failed, int64(1), false
		u.Return.V = "the return is too long to be shown before it is stored: 'salt-run jobs.lookup_jid " + string(r.plan.Start.JID) + "' shows it then"
	case size > maxInline:
		r.unstored += size
	}
	for _, v := range []*value.Value{&u.Return, &u.Retcode, &u.Success} {
		if raw, ok := v.V.(value.Raw); ok {
			v.V = slices.Clone(raw) // it is a part of a batch, which is not kept
		}
	}
	r.show(update{Update: *u})
}

// errSpooled is the answer about a job that is in the spool, and not in memory any more.
var errSpooled = rpc.Errorf(rpc.Unavailable, "the job is not stored yet")
