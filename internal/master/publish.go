package master

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
)

// Bounds of what a caller may ask for.
const (
	defaultTimeout = 5 * time.Second
	maxTimeout     = 24 * time.Hour
	// expiry is how long after its start a minion may still begin a job: enough
	// for a slow network, less than what the minions' memory of jobs covers.
	expiry = 5 * time.Minute
	// maxWaiting is how many jobs may wait for minions that are away.
	maxWaiting = 1000
)

// publish runs a job of a local user.
func (m *Master) publish(ctx context.Context, r *rpc.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := m.asker(ctx, r.From)
	return m.whileGood(ctx, who, func(ctx context.Context) error { return m.publishFor(ctx, r, q, who) })
}

// publishFor runs a job for whoever asks and tells its course.
func (m *Master) publishFor(ctx context.Context, r *rpc.Request, q protocol.Publish, who asker) error {
	p, err := m.permitPublish(ctx, who, q)
	if r.Decide(err) != nil {
		return err
	}
	if q.Subset > 0 {
		p.start.Minions = m.subset(p.start.Minions, q.Subset)
	}
	if q.Preview {
		if err := m.trail.Record(ctx, p.entry); err != nil {
			return m.unwritten(err)
		}
		return r.Send(ctx, p.start)
	}
	c, err := m.prepare(ctx, q, who, p)
	if err != nil {
		return err
	}
	w := c.watch()
	defer w.close()
	if q.Follow {
		w.output = func(ctx context.Context, u job.Update) error { return r.Send(ctx, u) }
	}
	c.begin()
	if err := r.Send(ctx, c.plan.Start); err != nil || q.Async {
		return err
	}
	return w.lots(ctx, func(list []told) error { return m.send(ctx, r, q.Lines, list) })
}

// subset picks n of the minions at random, those that are connected first.
func (m *Master) subset(ids []salt.MinionID, n int) []salt.MinionID {
	ids = slices.Clone(ids)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	slices.SortStableFunc(ids, func(a, b salt.MinionID) int {
		here, _ := m.fleet.Connected(a)
		there, _ := m.fleet.Connected(b)
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

// noMatch is where this asker finds what a target means.
func (a asker) noMatch() string {
	if a.identity.Role == bus.RoleMinion || a.identity.Role == bus.RoleCaller {
		return "publish.check shows which minions a target means"
	}
	return "'salt-key -L' lists the accepted minions; --preview-target shows which of them a target means"
}

// prepare makes the course of a job for the minions that were permitted: those, and
// no others that match by now. The job, and that it was permitted, is in the
// journal before the first minion gets it, which is when the course begins.
func (m *Master) prepare(ctx context.Context, q protocol.Publish, who asker, may permitted) (*course, error) {
	if len(q.Commands) == 0 {
		return nil, rpc.Errorf(rpc.Usage, "there is no function to run")
	}
	start := may.start
	if len(start.Minions) == 0 {
		m.trail.Note(may.entry)
		return nil, rpc.Errorf(rpc.NoMatch, "No minions matched the target. No command was sent, no jid was assigned.").
			WithHint("%s", who.noMatch())
	}
	now := time.Now()
	p, batch, err := m.plan(q, who, start, may.target, now)
	if err != nil {
		m.trail.Note(may.entry)
		return nil, err
	}
	p.Envelope.Reach = may.reach
	may.entry.Minions, may.entry.Count = start.Minions, len(start.Minions)
	err = m.book(ctx, may.entry, p.Start.JID, func() error {
		// In this order: a job that is known is carried on after a kill at any moment.
		if err := m.storePlan(ctx, &p, batch); err != nil {
			return err
		}
		return m.record(ctx, &p)
	})
	if err != nil {
		m.dropPlan(p.Start.JID)
		return nil, err
	}
	m.log.Info("job", "jid", p.Start.JID, "fun", functionList(p.Envelope.Commands), "user", who.name, "target", q.Target, "minions", len(start.Minions))
	c := newCourse(m, p, batch, now)
	m.jobs.add(c)
	return c, nil
}

// plan works out what a request means.
func (m *Master) plan(q protocol.Publish, who asker, start job.Start, t *target.Target, now time.Time) (plan, *job.Batch, error) {
	timeout := q.Timeout.Duration()
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	timeout = min(timeout, maxTimeout)
	batch, err := job.NewBatch(q.Batch, start.Minions)
	if err != nil {
		return plan{}, nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	start.JID = m.clock.Next(now)
	start.Batch = batch != nil
	tgt, kind := t.Published()
	p := plan{Start: start, Began: now, Keys: m.keys.tokens(start.Minions), Timeout: job.Seconds(timeout.Seconds()), Batch: q.Batch, Metadata: q.Metadata.V, Internal: q.Internal, Backend: who.subject.Backend, Envelope: job.Envelope{
		JID: start.JID, Commands: q.Commands, Compound: q.Compound, Target: tgt, TargetType: string(kind), Delimiter: q.Delimiter,
		User: who.name, From: who.minion(), Returner: q.Returner, ReturnTag: q.ReturnTag, ReturnConfig: q.ReturnConfig, ReturnKwargs: q.ReturnKwargs,
		Follow: q.Follow, Beat: job.Seconds(timeout.Seconds() / 2.5),
	}}
	if q.Queue > 0 {
		err = m.wait(&p, q.Queue.Duration(), now)
	}
	return p, batch, err
}

// wait lets a job wait for those of its minions that are away: for the holders of
// the keys that are accepted now.
func (m *Master) wait(p *plan, span time.Duration, now time.Time) error {
	if most := m.retention(); most > 0 && span > most {
		return rpc.Errorf(rpc.Usage, "a job can wait for %s at most, as long as the journal keeps it", most).
			WithHint("keep_jobs_seconds and event_retention in the master's configuration are the limit")
	}
	if m.jobs.waiting() >= maxWaiting {
		return rpc.Errorf(rpc.Busy, "%d jobs wait for minions that are away: that is the limit", maxWaiting).
			WithHint("'salt-run jobs.list_queued' lists them, 'salt-run jobs.cancel JID' withdraws one")
	}
	p.Until = now.Add(span).Truncate(time.Second)
	return nil
}

// record writes the start of a job into the journal, in the shape of Salt's
// salt/job/<jid>/new.
func (m *Master) record(ctx context.Context, p *plan) error {
	e := &p.Envelope
	data := map[string]any{
		"jid": string(e.JID), "tgt": e.Target, "tgt_type": e.TargetType, "user": e.User, "fun": e.Fun(), "arg": eventArgs(e),
		"minions": value.Texts(p.Start.Minions), "missing": value.Texts(p.Start.Missing),
	}
	if p.Metadata != nil {
		data["metadata"] = p.Metadata
	}
	if p.Internal {
		data["internal"] = true
	}
	if p.Backend != "" {
		data["eauth"] = p.Backend
	}
	_, err := m.events.Store(ctx, "salt/job/"+string(e.JID)+"/new", data, "")
	return err
}

// eventArgs shows arguments as Salt's events do.
func eventArgs(e *job.Envelope) []any { return e.Arguments() }
