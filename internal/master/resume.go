package master

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// plansTable holds the plans of the jobs of which something is expected.
const plansTable = "plans"

// maxPlan is the largest plan in bytes that a table takes. A larger one of a job that
// does not last is kept without what is needed to send it again.
const maxPlan = 900 << 10

func (m *Master) openPlans(ctx context.Context) (err error) {
	m.plans, err = m.journal.Table(ctx, plansTable)
	return err
}

// storePlan survives what the job's start survives: a job that is known without its plan
// would never reach a final state.
func (m *Master) storePlan(ctx context.Context, p *plan, batch *job.Batch) error {
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
	return m.plans.Keep(ctx, string(p.Start.JID), b)
}

func (m *Master) dropPlan(jid salt.JID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), storeTime)
	defer cancel()
	if err := m.plans.Remove(ctx, string(jid)); err != nil {
		m.log.Error("the plan of a job that has ended is not dropped", "jid", jid, "err", err)
	}
}

// resumeGrace is what minions get to come back before a batch goes on.
const resumeGrace = 10 * time.Second

// resume carries on the jobs that a stop of the master has interrupted.
func (m *Master) resume() error {
	ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
	defer cancel()
	var plans []plan
	var bad error
	err := m.plans.Each(ctx, func(jid string, b []byte) {
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
		m.log.Error("a job is not carried on", "err", bad)
	}
	for _, p := range plans {
		if err := m.carryOn(ctx, p); err != nil {
			m.log.Error("a job is not carried on", "jid", p.Start.JID, "err", err)
		}
	}
	return nil
}

// carryOn makes the course of a job from its plan and what the journal has of it.
func (m *Master) carryOn(ctx context.Context, p plan) error {
	h, err := m.history(ctx, p.Start.JID)
	if rpc.CodeOf(err) == rpc.NotFound { // nobody was told of it
		m.dropPlan(p.Start.JID)
		return nil
	}
	if err != nil {
		return err
	}
	p.Metadata = h.load.Metadata.V
	now := time.Now()
	c := newCourse(m, p, nil, now)
	var rest []salt.MinionID // whom it was not sent to
	for _, id := range slices.Concat(p.Start.Minions, p.Start.Missing) {
		s := h.standing(id)
		if s.State == job.Sent || s.State == job.Queued && s.Until.IsZero() {
			rest = append(rest, id)
		}
		c.tracker.Restore(id, s, now.Add(resumeGrace))
	}
	if c.batch, err = job.NewBatch(p.Batch, p.Start.Minions); err != nil {
		return err
	}
	if c.batch != nil {
		c.batch.Resume(rest, h.standings(p.Start.Minions))
		for _, id := range rest {
			c.tracker.Hold(id)
		}
	} else if p.lasts(nil) {
		for _, id := range rest {
			c.away(id, "the master was started anew before the minion had the job")
		}
	}
	// The others are asked when they come back.
	for _, id := range p.Start.Minions {
		c.tell(c.tracker.Doubt(id, now.Add(resumeGrace)))
	}
	m.log.Info("job carried on", "jid", p.Start.JID, "minions", len(rest))
	m.jobs.add(c)
	m.wg.Go(func() {
		if c.batch == nil || m.pause(resumeGrace) {
			c.run()
		}
	})
	return nil
}

// pause returns false when the master stops meanwhile.
func (m *Master) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// adopt makes a course for a job that a minion still works on, though the master
// knows nothing of it: it was started anew. Nil if that can not be done.
func (m *Master) adopt(ctx context.Context, jid salt.JID) *course {
	m.jobs.adopting.Lock()
	defer m.jobs.adopting.Unlock()
	if c := m.jobs.course(jid); c != nil {
		return c
	}
	h, err := m.history(ctx, jid)
	if err != nil {
		m.log.Warn("job not followed", "jid", jid, "err", err)
		return nil
	}
	p, now := h.load.plan(), time.Now()
	c := newCourse(m, p, nil, now)
	for _, id := range slices.Concat(p.Start.Minions, p.Start.Missing) {
		c.tracker.Restore(id, h.standing(id), now)
	}
	m.jobs.add(c)
	m.wg.Go(c.run)
	return c
}

// history is what the journal has of a job.
type history struct {
	load     load
	states   map[salt.MinionID]job.Standing
	returned map[salt.MinionID]job.State
}

// load is the event of the start of a job.
type load struct {
	JID        salt.JID        `json:"jid"`
	Target     string          `json:"tgt"`
	TargetType string          `json:"tgt_type"`
	User       string          `json:"user"`
	Fun        value.Value     `json:"fun"`
	Arg        value.Value     `json:"arg"`
	Minions    []salt.MinionID `json:"minions"`
	Missing    []salt.MinionID `json:"missing"`
	Metadata   value.Value     `json:"metadata"`
	Internal   bool            `json:"internal"`
}

// plan is as much of the plan as is needed to follow a job that is not sent to
// anybody any more.
func (l *load) plan() plan {
	p := plan{
		Start: job.Start{JID: l.JID, Minions: l.Minions, Missing: l.Missing}, Timeout: job.Seconds(defaultTimeout.Seconds()), Internal: l.Internal, Metadata: l.Metadata.V,
		Envelope: job.Envelope{JID: l.JID, Target: l.Target, TargetType: l.TargetType, User: l.User},
	}
	names, args := []any{l.Fun.V}, []any{l.Arg.V}
	if list, ok := l.Fun.V.([]any); ok {
		p.Envelope.Compound, names = true, list
		args, _ = l.Arg.V.([]any)
	}
	for i, name := range names {
		text, _ := name.(string)
		c := job.Command{Function: salt.Function(text)}
		if i < len(args) {
			c.Args, _ = args[i].([]any)
		}
		p.Envelope.Commands = append(p.Envelope.Commands, c)
	}
	return p
}

// standing is where the job stood on a minion when it was recorded last.
func (h *history) standing(id salt.MinionID) job.Standing {
	if s, ok := h.returned[id]; ok {
		return job.Standing{State: s}
	}
	return h.states[id]
}

func (h *history) standings(ids []salt.MinionID) map[salt.MinionID]job.State {
	all := make(map[salt.MinionID]job.State, len(ids))
	for _, id := range ids {
		all[id] = h.standing(id).State
	}
	return all
}

// history reads what the journal has of a job; it is NotFound of one that there
// is not.
func (m *Master) history(ctx context.Context, jid salt.JID) (*history, error) {
	h := &history{states: map[salt.MinionID]job.Standing{}, returned: map[salt.MinionID]job.State{}}
	err := m.journal.Read(ctx, journal.Query{Subjects: []string{event.JobSubject(jid, "")}}, h.add)
	if err == nil && h.load.JID == "" {
		err = rpc.Errorf(rpc.NotFound, "the journal has no job %s", jid)
	}
	return h, err
}

func (h *history) add(e event.Event) error {
	switch kind := jobKind(e.Tag); kind {
	case "new":
		return json.Unmarshal(e.Data, &h.load)
	case "ret":
		r, err := readReturn(e)
		if err == nil {
			h.returned[r.ID] = r.State
		}
		return err
	case "state":
		return h.addStates(e)
	}
	return nil
}

// jobKind is the part of a job's tag behind its id.
func jobKind(tag string) string {
	if parts := strings.SplitN(tag, "/", 5); len(parts) > 3 {
		return parts[3]
	}
	return ""
}

func (h *history) addStates(e event.Event) error {
	states, err := readStates(e)
	for id, s := range states {
		h.states[id] = s
	}
	return err
}

// readStates is the inverse of recordStates.
func readStates(e event.Event) (map[salt.MinionID]job.Standing, error) {
	var data struct {
		Minions map[salt.MinionID]struct {
			State job.State `json:"state"`
			Text  string    `json:"text"`
			Until time.Time `json:"until"`
		} `json:"minions"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return nil, err
	}
	all := make(map[salt.MinionID]job.Standing, len(data.Minions))
	for id, s := range data.Minions {
		if s.State == "sent" {
			s.State = job.Sent
		}
		all[id] = job.Standing(s)
	}
	return all, nil
}

// follow tells the course of a job that was started before: from its beginning,
// until nothing more is expected for now. Who started it may, and who may use the
// runner jobs.follow.
func (m *Master) follow(ctx context.Context, r *rpc.Request) error {
	var q protocol.Follow
	if err := r.Decode(&q); err != nil {
		return err
	}
	jid, err := salt.ParseJID(string(q.JID))
	if err != nil {
		return rpc.Errorf(rpc.Usage, "%v", err)
	}
	who := m.asker(ctx, r.From)
	question := acl.Question{Scope: acl.Runner, Commands: []acl.Command{{Function: "jobs.follow", Args: []any{string(jid)}}}}
	k, err := m.lookup(ctx, jid)
	if err != nil {
		return err
	}
	if k == nil || !who.started(k) {
		var e audit.Entry
		if e, err = m.permit(who, question, "", ""); err == nil {
			e.JID = jid
			err = m.unwritten(m.trail.Record(ctx, e))
		}
	}
	if r.Decide(err) != nil {
		return err
	}
	if k == nil {
		return rpc.Errorf(rpc.NotFound, "the journal has no job %s", jid).WithHint("'salt-run jobs.list_jobs' lists those that it has")
	}
	return m.whileGood(ctx, who, func(ctx context.Context) error { return m.replay(ctx, r, jid) })
}

// replay sends what has happened of a job, then what happens.
func (m *Master) replay(ctx context.Context, r *rpc.Request, jid salt.JID) error {
	var w *watcher
	if c := m.jobs.course(jid); c != nil {
		w = c.watch() // before the journal is read, so that nothing is between the two
		defer w.close()
	}
	h, err := m.history(ctx, jid)
	if err != nil {
		return err
	}
	start := job.Start{JID: jid, Minions: h.load.Minions, Missing: h.load.Missing}
	if err := r.Send(ctx, start); err != nil {
		return err
	}
	if err := m.replayReturns(ctx, r, jid); err != nil {
		return err
	}
	states := h.states
	if w != nil {
		states = w.course.standings()
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
	return w.lots(ctx, func(list []told) error {
		list = slices.DeleteFunc(list, func(t told) bool { return t.State.Returned() && h.returned[t.ID] != "" })
		return m.send(ctx, r, true, list)
	})
}

func (m *Master) replayReturns(ctx context.Context, r *rpc.Request, jid salt.JID) error {
	return m.journal.Read(ctx, journal.Query{Subjects: []string{event.JobSubject(jid, "ret")}}, func(e event.Event) error {
		u, err := readReturn(e)
		if err != nil {
			return err
		}
		b, err := u.Append(nil)
		if err != nil {
			return err
		}
		return r.SendRaw(ctx, b)
	})
}

// courses tells runners of the jobs of which more is expected.
func (m *Master) courses() []runner.Course {
	return m.coursesOf(func(*known) bool { return true })
}

func (m *Master) coursesOf(shown func(*known) bool) []runner.Course {
	var list []runner.Course
	for _, c := range m.jobs.all() {
		if !shown(c.known) {
			continue
		}
		e := &c.plan.Envelope
		list = append(list, runner.Course{
			JID: c.plan.Start.JID, User: e.User, Target: e.Target, TargetType: e.TargetType, Fun: e.Fun(), Args: c.known.args,
			Until: c.plan.Until, Internal: c.plan.Internal, Standings: c.standings(),
		})
	}
	return list
}

// cancelJob withdraws a job from the minions that it was not sent to.
func (m *Master) cancelJob(jid salt.JID, by string) ([]salt.MinionID, error) {
	c := m.jobs.course(jid)
	if c == nil {
		return nil, errNoneWaits(jid)
	}
	ids := c.cancel(by)
	if len(ids) == 0 {
		return nil, salt.WithHint(fmt.Errorf("job %s was sent to all its minions: there is nothing to withdraw", jid),
			fmt.Sprintf("salt '*' saltutil.term_job %s ends it where it runs", jid))
	}
	m.log.Info("job cancelled", "jid", jid, "user", by, "minions", len(ids))
	return ids, nil
}

func errNoneWaits(jid salt.JID) error {
	return salt.WithHint(fmt.Errorf("job %s waits for nobody", jid), "'salt-run jobs.list_queued' lists the jobs that do")
}

// awaitJob returns when nothing more is expected of a job for now.
func (m *Master) awaitJob(ctx context.Context, jid salt.JID) error {
	c := m.jobs.course(jid)
	if c == nil {
		return nil
	}
	w := c.watch()
	defer w.close()
	return w.each(ctx, func(told) error { return nil })
}

// revokeJobs withdraws what waits for keys that are not accepted any more.
func (m *Master) revokeJobs() {
	for _, c := range m.jobs.all() {
		c.revoke(m.keys.accepts)
	}
}
