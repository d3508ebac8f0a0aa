package dispatch

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
)

// Limits of requests for jobs.
const (
	defaultTimeout = 5 * time.Second
	maxTimeout     = 24 * time.Hour
	// expiry is how long after its start a minion may still begin a job: enough for a slow
	// network, and less than minions remember jobs.
	expiry = 5 * time.Minute
	// maxWaiting is how many jobs may wait for minions that are away.
	maxWaiting = 1000
)

// publish runs a permitted job and sends its progress to the caller.
func (d *Dispatcher) publish(ctx context.Context, req *rpc.Request, q protocol.Publish, who authz.Principal, may authz.Permission) error {
	if q.Subset > 0 {
		may = may.Only(d.subset(may.Start().Minions, q.Subset))
	}
	if q.Preview {
		if err := d.Audit.Book(ctx, may, "", func() error { return nil }); err != nil {
			return err
		}
		return req.Send(ctx, may.Start())
	}
	r, err := spooling{d}.accept(ctx, req, q, who, may)
	if err != nil {
		return err
	}
	w := r.watch()
	defer w.close()
	started := make(chan struct{})
	if q.Follow {
		w.output = after(started, ctx, func(ctx context.Context, u job.Update) error { return req.Send(ctx, u) })
	}
	r.Begin()
	if q.Async {
		if err := d.unknownOf(q.Commands).begun(ctx, w); err != nil {
			return err
		}
	}
	if err := req.Send(ctx, r.plan.Start); err != nil || q.Async {
		return err
	}
	close(started)
	if q.Waiting {
		defer sayElecting(d, w)()
	}
	return w.batches(ctx, func(list []update) error { return d.send(ctx, req, q.Lines, list) })
}

// after returns send, but it waits until started is closed or the caller is gone: the first
// message to a caller must be the start of the job, and a quick command on a near minion may
// write output before that is sent.
func after(started <-chan struct{}, caller context.Context, send func(context.Context, job.Update) error) func(context.Context, job.Update) error {
	return func(ctx context.Context, u job.Update) error {
		select {
		case <-started:
			return send(ctx, u)
		case <-caller.Done():
			return context.Cause(caller)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Execute runs a permitted job and collects its progress. A target without minions is not an
// error: there are no updates.
func (d *Dispatcher) Execute(ctx context.Context, q protocol.Publish, who authz.Principal, may authz.Permission) ([]job.Update, error) {
	r, err := d.Prepare(ctx, q, who, may)
	if rpc.CodeOf(err) == rpc.NoMatch {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := r.watch()
	defer w.close()
	r.Begin()
	var updates []job.Update
	left := rpc.MaxBuilt
	err = w.each(ctx, func(t update) error {
		u, err := d.whole(ctx, t, &left)
		updates = append(updates, u)
		return err
	})
	return updates, err
}

// subset picks n of the minions at random, connected ones first.
func (d *Dispatcher) subset(ids []salt.MinionID, n int) []salt.MinionID {
	ids = slices.Clone(ids)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	slices.SortStableFunc(ids, func(a, b salt.MinionID) int {
		here, _ := d.Fleet.Connected(a)
		there, _ := d.Fleet.Connected(b)
		switch {
		case here == there:
			return 0
		case here:
			return -1
		}
		return 1
	})
	ids = ids[:min(n, len(ids))]
	slices.Sort(ids)
	return ids
}

func functionList(commands []job.Command) string {
	s := ""
	for i, c := range commands {
		if i > 0 {
			s += ","
		}
		s += string(c.Function)
	}
	return s
}

// Prepare accepts a job for the permitted minions that match now. The job and its permission
// are in the journal before Begin of the run sends it to the first minion.
func (d *Dispatcher) Prepare(ctx context.Context, q protocol.Publish, who authz.Principal, may authz.Permission) (*Run, error) {
	if err := check(d.Audit, q, who, may); err != nil {
		return nil, err
	}
	if err := (relay{d}).ready(); err != nil {
		d.Audit.Note(may)
		return nil, err
	}
	now := time.Now()
	p, batch, err := d.plan(q, who, may.Start(), may.Target(), now)
	if err != nil {
		d.Audit.Note(may)
		return nil, err
	}
	p.Envelope.Reach = may.Reach()
	r, err := p.start(ctx, d, batch, now, func(store func() error) error { return d.Audit.Book(ctx, may, p.Start.JID, store) })
	if err != nil {
		return nil, err
	}
	d.Log.Info("job", "jid", p.Start.JID, "fun", functionList(p.Envelope.Commands), "user", who.Name(), "target", q.Target, "minions", len(p.Start.Minions))
	return r, nil
}

// start stores a new job, while book books that, and makes its run. Until that is there, or the job is
// withdrawn, this member does not take the job over from itself, though its lease may have lapsed meanwhile.
func (p *plan) start(ctx context.Context, d *Dispatcher, batch *job.Batch, now time.Time, book func(store func() error) error) (*Run, error) {
	jid := p.Start.JID
	d.jobs.setStarting(jid, true)
	begun := false
	err := book(func() error {
		// With this order a known job continues after a kill at any time.
		if err := d.storePlan(ctx, p, batch); err != nil {
			return err
		}
		begun = true
		return d.record(ctx, p)
	})
	stored := err == nil
	if stored {
		err = p.keepHold(ctx, d, batch)
	}
	if err != nil {
		return nil, p.undo(d, begun, stored, err)
	}
	p.noteStarted(ctx, d, batch)
	r := newRun(d, *p, batch, now)
	d.jobs.add(r)
	d.jobs.setStarting(jid, false)
	return r, nil
}

// check refuses a job without functions, permission or minions.
func check(to Audit, q protocol.Publish, who authz.Principal, may authz.Permission) error {
	if len(q.Commands) == 0 {
		return rpc.Errorf(rpc.Usage, "there is no function to run")
	}
	if err := may.Err(); err != nil {
		return err
	}
	if len(may.Start().Minions) == 0 {
		to.Note(may)
		return rpc.Errorf(rpc.NoMatch, "No minions matched the target. No command was sent, no jid was assigned.").
			WithHint("%s", noMatch(who))
	}
	return nil
}

// plan makes the plan of a request.
func (d *Dispatcher) plan(q protocol.Publish, who authz.Principal, start job.Start, t *target.Target, now time.Time) (plan, *job.Batch, error) {
	timeout := q.Timeout.Duration()
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	timeout = min(timeout, maxTimeout)
	batch, err := job.NewBatch(q.Batch, start.Minions)
	if err != nil {
		return plan{}, nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	start.JID = d.jids.Next(now)
	start.Batch = batch != nil
	tgt, kind := t.Published()
	p := plan{Start: start, Began: now, Keys: d.Keys.Tokens(start.Minions), Timeout: job.Seconds(timeout.Seconds()), Batch: q.Batch, Metadata: q.Metadata.V, Internal: q.Internal, Backend: who.Backend(), Envelope: job.Envelope{
		JID: start.JID, Commands: q.Commands, Compound: q.Compound, Target: tgt, TargetType: string(kind), Delimiter: q.Delimiter,
		User: who.Name(), From: who.Minion(), Returner: q.Returner, ReturnTag: q.ReturnTag, ReturnConfig: q.ReturnConfig, ReturnKwargs: q.ReturnKwargs,
		Follow: q.Follow, Heartbeat: job.Seconds(timeout.Seconds() / 2.5),
	}}
	if q.Queue > 0 {
		err = d.wait(&p, q.Queue.Duration(), now)
	}
	return p, batch, err
}

// wait lets a job wait for its minions that are away: for the holders of the keys that are
// accepted now.
func (d *Dispatcher) wait(p *plan, span time.Duration, now time.Time) error {
	if most := d.Retention; most > 0 && span > most {
		return rpc.Errorf(rpc.Usage, "a job can wait for %s at most, as long as the journal keeps it", most).
			WithHint("keep_jobs_seconds and event_retention in the master's configuration are the limit")
	}
	if _, waiting := d.jobs.underWay(); waiting >= maxWaiting {
		return rpc.Errorf(rpc.Busy, "%d jobs wait for minions that are away: that is the limit", maxWaiting).
			WithHint("'salt-run jobs.list_queued' lists them, 'salt-run jobs.cancel JID' withdraws one")
	}
	p.Until = now.Add(span).Truncate(time.Second)
	return nil
}

// record writes the start of a job into the journal, in the form of Salt's salt/job/<jid>/new.
// Before it comes the event with the bare id and the expected minions, as in Salt, which is
// stored without waiting since nothing depends on it.
func (d *Dispatcher) record(ctx context.Context, p *plan) error {
	d.Events.AnnounceFor(p.Envelope.User, string(p.Start.JID), p.expected())
	_, err := d.Events.Store(ctx, startTag(p.Start.JID), p.load(), "")
	return err
}

func startTag(jid salt.JID) string { return "salt/job/" + string(jid) + "/new" }

// expected is the data of the event with the bare id.
func (p *plan) expected() map[string]any {
	return map[string]any{"minions": value.Texts(p.Start.Minions)}
}

// load is the data of the event of the start.
func (p *plan) load() map[string]any {
	e := &p.Envelope
	data := map[string]any{
		"jid": string(e.JID), "tgt": p.given(), "tgt_type": e.TargetType, "user": e.User, "fun": e.Fun(), "arg": e.Arguments(),
		"minions": value.Texts(p.Start.Minions), "missing": value.Texts(p.Start.Missing),
	}
	if p.Metadata != nil {
		data["metadata"] = p.Metadata
	}
	if p.Internal {
		data["internal"] = true
	}
	if p.spooled {
		data["without_quorum"] = true
	}
	if p.Backend != "" {
		data["eauth"] = p.Backend
	}
	return data
}
