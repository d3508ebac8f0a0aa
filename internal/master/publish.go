package master

import (
	"context"
	"slices"
	"sync"
	"time"

	"brine/internal/bus"
	"brine/internal/job"
	"brine/internal/protocol"
	"brine/internal/salt"
	"brine/internal/target"
)

// Bounds of what a caller may ask for.
const (
	defaultTimeout = 5 * time.Second
	maxTimeout     = 24 * time.Hour
	// expiry is how long after its start a minion may still begin a job: enough
	// for a slow network, less than what the minions' memory of jobs covers.
	expiry = 5 * time.Minute
)

// publish runs a job of a local user.
func (m *Master) publish(ctx context.Context, r *bus.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	return m.publishFor(ctx, r, q, m.asker(ctx, r.From))
}

// publishFor runs a job for whoever asks and tells its course.
func (m *Master) publishFor(ctx context.Context, r *bus.Request, q protocol.Publish, who asker) error {
	start, t, err := m.permitPublish(who, q)
	if err != nil {
		return err
	}
	if q.Preview {
		return r.Send(ctx, start)
	}
	run, err := m.start(ctx, q, who, start, t)
	if err != nil {
		return err
	}
	defer m.jobs.forget(run)
	if err := r.Send(ctx, run.start); err != nil || q.Async {
		return err
	}
	return run.follow(ctx, func(u job.Update) error { return r.Send(ctx, u) })
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

// resolve finds the minions that a target means, by what the master knows.
func (m *Master) resolve(q protocol.Publish) (job.Start, *target.Target, error) {
	kind, err := target.ParseKind(q.TargetType)
	if err != nil {
		return job.Start{}, nil, bus.Errorf(bus.Usage, "%v", err)
	}
	t, err := target.Parse(q.Target, kind, target.Options{Delimiter: q.Delimiter, Nodegroups: m.nodegroups()})
	if err != nil {
		return job.Start{}, nil, bus.Errorf(bus.Usage, "target: %v", err)
	}
	if bad := t.Impossible(); len(bad) > 0 {
		return job.Start{}, nil, bus.Errorf(bus.Usage, "target: %q can be the id of no minion", bad[0])
	}
	var start job.Start
	known := m.keys.ids()
	if named, ok := t.IDs(); ok {
		for _, id := range named {
			if _, found := slices.BinarySearch(known, id); found {
				start.Minions = append(start.Minions, id)
			} else {
				start.Missing = append(start.Missing, id)
			}
		}
		return start, t, nil
	}
	for _, id := range known {
		ok, err := t.Match(target.Facts{ID: id, Grains: m.facts.grains(id), Pillar: m.pillars.of(id)})
		if err != nil {
			return job.Start{}, nil, bus.Errorf(bus.Usage, "target: %v", err)
		}
		if ok {
			start.Minions = append(start.Minions, id)
		}
	}
	return start, t, nil
}

// start sends a job to the minions that its target t resolved to: those, and no
// others that match by now, are what was permitted. The job is in the journal
// before the first minion gets it.
func (m *Master) start(ctx context.Context, q protocol.Publish, who asker, start job.Start, t *target.Target) (*running, error) {
	if len(q.Commands) == 0 {
		return nil, bus.Errorf(bus.Usage, "there is no function to run")
	}
	if len(start.Minions) == 0 {
		return nil, bus.Errorf(bus.NoMatch, "No minions matched the target. No command was sent, no jid was assigned.").
			WithHint("'salt-key -L' lists the accepted minions; --preview-target shows which of them a target means")
	}
	now := time.Now()
	start.JID = m.clock.Next(now)
	timeout := q.Timeout.Duration()
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	timeout = min(timeout, maxTimeout)
	tgt, kind := t.Published()
	e := &job.Envelope{
		JID: start.JID, Commands: q.Commands, Compound: q.Compound, Target: tgt, TargetType: string(kind), Delimiter: q.Delimiter,
		User: who.name, From: who.minion(), Returner: q.Returner, ReturnTag: q.ReturnTag, Expires: m.steady.Now().Add(expiry), Beat: job.Seconds(timeout.Seconds() / 2.5),
	}
	sealed, err := job.Seal(e, m.key)
	if err != nil {
		return nil, err
	}
	if err := m.record(ctx, e, start); err != nil {
		return nil, err
	}
	run := m.jobs.add(e, start, timeout, now)
	m.log.Info("job", "jid", e.JID, "fun", functionList(e.Commands), "user", who.name, "target", q.Target, "minions", len(start.Minions))
	for _, id := range start.Minions {
		m.send(run, id, sealed)
	}
	for _, id := range start.Missing {
		run.feed(input{id: id, away: true, text: "no accepted key has this id"})
	}
	return run, nil
}

// send gives the job to one minion, or notes that it is not there.
func (m *Master) send(run *running, id salt.MinionID, sealed []byte) {
	ready, seen := m.present.has(id)
	if ready {
		for _, part := range bus.Parts(sealed) {
			if err := m.broker.Conn().Publish(bus.JobSubject(id), part); err != nil {
				m.log.Error("job not sent", "jid", run.start.JID, "minion", id, "err", err)
			}
		}
		return
	}
	text := "it was not seen since this master started"
	if !seen.IsZero() {
		text = "last seen " + seen.Format("2006-01-02 15:04:05")
	}
	run.feed(input{id: id, away: true, text: text})
}

// record writes the start of a job into the journal, in the shape of Salt's
// salt/job/<jid>/new.
func (m *Master) record(ctx context.Context, e *job.Envelope, start job.Start) error {
	_, err := m.relay.Store(ctx, "salt/job/"+string(e.JID)+"/new", map[string]any{
		"jid": string(e.JID), "tgt": e.Target, "tgt_type": e.TargetType, "user": e.User, "fun": e.Fun(), "arg": eventArgs(e),
		"minions": texts(start.Minions), "missing": texts(start.Missing),
	}, "")
	return err
}

// eventArgs shows arguments as Salt's events do.
func eventArgs(e *job.Envelope) []any { return e.Arguments() }

// input is something that happened to a job.
type input struct {
	id     salt.MinionID
	report *job.Report // what the minion said
	away   bool        // it was not connected
	lost   bool        // its connection ended
	text   string
}

// running is a job that somebody waits for.
type running struct {
	start   job.Start
	tracker *job.Tracker
	wake    chan struct{}
	mu      sync.Mutex
	queue   []input
}

// feed hands in what happened. It never blocks: the queue holds at most a few
// entries for each minion, since a minion's words are bounded by the tracker's
// reader taking them all at once.
func (r *running) feed(in input) {
	r.mu.Lock()
	r.queue = append(r.queue, in)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *running) take() []input {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queue
	r.queue = nil
	return q
}

// follow tells the course of the job until nothing more is expected or ctx ends.
func (r *running) follow(ctx context.Context, tell func(job.Update) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for _, in := range r.take() {
			if u := r.step(in); u != nil {
				if err := tell(*u); err != nil {
					return err
				}
			}
		}
		given, next := r.tracker.Tick(time.Now())
		for _, u := range given {
			if err := tell(u); err != nil {
				return err
			}
		}
		if r.tracker.Finished() {
			return nil
		}
		timer.Reset(time.Until(next))
		select {
		case <-r.wake:
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *running) step(in input) *job.Update {
	switch {
	case in.report != nil:
		return r.tracker.Report(in.id, *in.report, time.Now())
	case in.lost:
		return r.tracker.Lost(in.id, time.Now())
	case in.away:
		return r.tracker.Away(in.id, in.text)
	}
	return nil
}
