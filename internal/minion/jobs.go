package minion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// answerTime bounds how long a master may take for one request.
const answerTime = 10 * time.Second

// onJob takes what came on the job subject. It must not block: the next job is
// behind it.
func (m *Minion) onJob(s *upstream.Session, body []byte) {
	e, err := job.Open(body, s.Master, s.Clock.Now())
	switch {
	case errors.Is(err, job.ErrExpired):
		m.log.Warn("job refused", "jid", e.JID, "err", err)
		m.tell(s, e.JID, job.Report{State: job.Expired, Text: "the job came after its time"})
		return
	case err != nil:
		m.log.Error("job refused", "err", err)
		return
	}
	if was := m.origins.Claim(e, s); was != upstream.Fresh {
		m.repeated(s, e, was)
		return
	}
	if m.seen.Has(e.JID) {
		m.origins.End(e.JID)
		m.log.Warn("job not begun: it was before", "jid", e.JID)
		m.tellAgain(s, e.JID)
		return
	}
	if err := m.book(e, m.box(s.Up).Name()); err != nil {
		m.log.Error("job refused", "jid", e.JID, "err", err)
		m.tellAll(m.origins.End(e.JID), e.JID, job.Report{State: job.Refused, Text: err.Error()})
		return
	}
	if meant, err := m.isTarget(e, s.Up); err != nil || !meant {
		m.reserves.Drop(e.JID)
		m.tellNotMeant(e, err)
		return
	}
	m.jobs.spawn(func() { m.runJob(s.Up, e) })
}

// book writes down that a job begins, and keeps space for its return, in the outbox of
// this name.
func (m *Minion) book(e *job.Envelope, box string) error {
	if err := m.reserves.Take(e, box); err != nil {
		return fmt.Errorf("the minion cannot keep the return of a job now: %w", err)
	}
	if _, err := m.seen.First(e.JID); err != nil {
		m.reserves.Drop(e.JID)
		return fmt.Errorf("the minion cannot record the job: %w", err)
	}
	return nil
}

// tellAgain answers a job that came once more, as one does whose receipt was lost:
// it is not begun again.
func (m *Minion) tellAgain(s *upstream.Session, jid salt.JID) { m.tell(s, jid, m.before(jid)) }

// before is where a job stands that came before.
func (m *Minion) before(jid salt.JID) job.Report {
	state := job.Received
	if m.jobs.has(jid) {
		state = job.Running
	}
	return job.Report{State: state, Text: "it came before"}
}

// account tells the master where the jobs stand that it expects something of: it, or
// the connection, was gone for a while. They may be many, so one is told after the
// other was heard.
func (m *Minion) account(ctx context.Context, s *upstream.Session) {
	for _, jid := range s.Asked {
		r := job.Report{State: job.Unknown}
		if m.seen.Has(jid) {
			r = m.before(jid)
		}
		asking, cancel := context.WithTimeout(ctx, answerTime)
		err := s.Ask(asking, "ret."+string(jid), r, nil)
		cancel()
		if err != nil {
			m.log.Warn("what became of a job is not told", "jid", jid, "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// repeated deals with a job whose id is under way: another master of the same system
// may have sent it too, and is then told of it as the first is.
func (m *Minion) repeated(s *upstream.Session, e *job.Envelope, was upstream.Claimed) {
	switch was {
	case upstream.Shared:
		m.log.Debug("job is under way already for another master", "jid", e.JID, "master", s.Name)
		m.tell(s, e.JID, job.Report{State: job.Received})
	case upstream.Another:
		m.log.Error("job refused: another master has sent another job with this id", "jid", e.JID, "master", s.Name)
		m.tell(s, e.JID, job.Report{State: job.Refused, Text: "another job has this id on the minion"})
	default:
		m.log.Warn("job not begun: it was before", "jid", e.JID)
		m.tellAgain(s, e.JID)
	}
}

// isTarget checks the job's target against the live facts, and the pillar of the
// master that has sent it.
func (m *Minion) isTarget(e *job.Envelope, u *upstream.Uplink) (bool, error) {
	kind, err := target.ParseKind(e.TargetType)
	if err != nil {
		return false, err
	}
	t, err := target.Parse(e.Target, kind, target.Options{Delimiter: e.Delimiter})
	if err != nil {
		return false, err
	}
	f := target.Facts{ID: m.id}
	if t.NeedsGrains() {
		f.Grains = m.grains.now()
	}
	if t.NeedsPillar() {
		f.Pillar = u.Pillar()
	}
	return t.Match(f)
}

func (m *Minion) tellNotMeant(e *job.Envelope, err error) {
	senders := m.origins.End(e.JID)
	if err != nil {
		m.log.Warn("job refused: its target cannot be judged", "jid", e.JID, "err", err)
		m.tellAll(senders, e.JID, job.Report{State: job.Refused, Text: "target: " + err.Error()})
		return
	}
	m.log.Debug("job is not for this minion", "jid", e.JID, "target", e.Target)
	m.tellAll(senders, e.JID, job.Report{State: job.NotTargeted})
}

// tellAll tells those of the masters that are connected.
func (m *Minion) tellAll(senders []upstream.Sender, jid salt.JID, r job.Report) {
	for _, w := range senders {
		if s := w.Session(); s != nil {
			m.tell(s, jid, r)
		}
	}
}

// tell sends a receipt or a sign of life; if it is lost, nothing is.
func (m *Minion) tell(s *upstream.Session, jid salt.JID, r job.Report) {
	if err := s.Tell("ret."+string(jid), r); err != nil {
		m.log.Debug("receipt not sent", "jid", jid, "err", err)
	}
}

// runJob runs a job and sees to it that its return reaches the master.
func (m *Minion) runJob(u *upstream.Uplink, e *job.Envelope) {
	waiting := m.heartbeat(e, job.Received)
	ctx, run, err := m.jobs.begin(m.ctx, e)
	waiting()
	if err != nil {
		m.finish(e, job.Report{State: job.Refused, Text: err.Error()})
		return
	}
	back, err := m.returners(e.Returner, options(e))
	if err != nil {
		run.end()
		m.log.Warn("job refused", "jid", e.JID, "err", err)
		m.finish(e, job.Report{State: job.Refused, Text: err.Error() + "; " + salt.Hint(err)})
		return
	}
	m.log.Info("job", "jid", e.JID, "fun", e.Fun(), "user", e.User)
	stop := m.heartbeat(e, job.Running)
	report := m.execute(ctx, e, u)
	delivered := m.giveBack(e, report, back)
	run.end()
	select { // a large return, or one of thousands, takes its time
	case <-delivered:
	case <-m.ctx.Done():
	}
	stop()
}

// firstHeartbeat is how soon a job that takes time says so. The return of a quicker one
// is its receipt, too: thousands of minions then have half as much to say.
const firstHeartbeat = 150 * time.Millisecond

// heartbeat says where the job stands, soon and then regularly, until stop is called. A
// master that did not send the job is not told: it would not know what of.
func (m *Minion) heartbeat(e *job.Envelope, state job.State) (stop func()) {
	every := max(e.Beat.Duration(), 100*time.Millisecond)
	done := make(chan struct{})
	senders := m.origins.Of(e.JID) // the last ones: they are told until the return is delivered
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTimer(min(firstHeartbeat, every))
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if now := m.origins.Of(e.JID); len(now) > 0 {
					senders = now
				}
				m.tellAll(senders, e.JID, job.Report{State: state})
				t.Reset(every)
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// finish hands the return over, to each master that has sent the job. It returns
// when the outboxes have had a little time to deliver it; delivered is closed when
// they have done so, or their masters are gone.
func (m *Minion) finish(e *job.Envelope, r job.Report) (delivered <-chan struct{}) {
	var wg sync.WaitGroup
	var left atomic.Bool
	for _, w := range m.origins.End(e.JID) {
		wg.Go(func() {
			if !m.deliver(w.Up, e, r) {
				left.Store(true)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if wg.Wait(); !left.Load() {
			m.reserves.Drop(e.JID)
		}
	}()
	timer := time.NewTimer(outbox.Patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return done
}

// deliver puts a return into the outbox of an uplink. When the master is gone by
// then, the next one of the uplink gets it: with it goes what the minion ran. While
// the outbox cannot take it, it stays in the space that is kept for it; false is that it
// still does when the daemon ends.
func (m *Minion) deliver(u *upstream.Uplink, e *job.Envelope, r job.Report) bool {
	ctx := context.WithoutCancel(m.ctx)
	ret := asSent(e.Commands, r)
	out := outbox.Outgoing{Op: "ret." + string(e.JID), Body: ret, ID: returnName(e.JID)}
	_, err := m.box(u).SendWhole(ctx, out)
	for kept := false; rpc.CodeOf(err) == rpc.Unavailable; _, err = m.box(u).SendWhole(ctx, out) {
		if !kept {
			if err := m.reserves.Keep(e.JID, ret); err != nil {
				m.log.Error("the return of a job is not kept", "jid", e.JID, "err", err)
			}
			m.log.Error("the return of a job waits for space", "jid", e.JID, "err", err)
			kept = true
		}
		if !sleep(m.ctx, outbox.RetryPause) {
			return false
		}
	}
	if err == nil {
		return true
	}
	m.log.Error("return not delivered", "jid", e.JID, "err", err)
	out.ID = ""
	// A return that is too large, say: the caller shall not wait for it.
	out.Body = asSent(e.Commands, report(ctx, function.Result{Return: "ERROR: the return was not delivered: " + err.Error(), Retcode: 1}))
	if _, err := m.box(u).Send(ctx, out); err != nil {
		m.log.Error("not even that was delivered", "jid", e.JID, "err", err)
	}
	return true
}

// maxSentArguments bounds what a return carries of its job's arguments: a master
// that knows the job has them.
const maxSentArguments = 16 << 10

// asSent is a return with what was run. Arguments that are too large are left out.
func asSent(commands []job.Command, r job.Report) protocol.Return {
	if b, err := json.Marshal(commands); err != nil || len(b) > maxSentArguments {
		names := make([]job.Command, len(commands))
		for i, c := range commands {
			names[i].Function = c.Function
		}
		commands = names
	}
	return protocol.Return{Report: r, Commands: commands}
}

// execute runs the commands of a job, one after the other.
func (m *Minion) execute(ctx context.Context, e *job.Envelope, u *upstream.Uplink) job.Report {
	host := m.hostOf(e, u)
	if e.Follow && u != nil {
		f := m.follow(e, u)
		defer f.end()
		host.Output = f
	}
	run := func(c job.Command) function.Result {
		return m.run(ctx, function.Call{JID: e.JID, Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: host, Reach: e.Reach})
	}
	if !e.Compound && len(e.Commands) == 1 {
		return report(ctx, run(e.Commands[0]))
	}
	returns, retcodes, success := map[string]any{}, map[string]any{}, map[string]any{}
	state := job.Done
	var text string
	for _, c := range e.Commands {
		res := run(c)
		one := report(ctx, res)
		name := string(c.Function)
		returns[name], retcodes[name], success[name] = res.Return, res.Retcode, res.Success
		if one.State != job.Done {
			state, text = one.State, one.Text
		}
	}
	return job.Report{State: state, Text: text, Return: value.Value{V: returns}, Retcode: value.Value{V: retcodes}, Success: value.Value{V: success}}
}

// lastGrace is what a function gets to return once its job was ended: more than
// its processes get between SIGTERM and SIGKILL.
const lastGrace = 5 * time.Second

// run runs one function. One that does not return though its job was ended is left
// to itself, so that the job, and its place among those that may run, is free.
func (m *Minion) run(ctx context.Context, c function.Call) function.Result {
	result := make(chan function.Result, 1)
	go func() { result <- module.Run(ctx, c) }()
	select {
	case r := <-result:
		return r
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastGrace)
	defer timer.Stop()
	select {
	case r := <-result:
		return r
	case <-timer.C:
	}
	m.log.Error("a function does not return though its job was ended; it is left to itself", "jid", c.JID, "fun", c.Function)
	cause := context.Cause(ctx)
	return function.Result{Return: "ERROR: " + cause.Error(), Retcode: 1, Err: cause}
}

// report translates the result of one function.
func report(ctx context.Context, res function.Result) job.Report {
	r := job.Report{State: job.Done, Return: value.Value{V: res.Return}, Retcode: value.Value{V: res.Retcode}, Success: value.Value{V: res.Success}, Out: res.Out}
	if !res.Success {
		r.State = job.Failed
	}
	var k *killed
	if errors.As(context.Cause(ctx), &k) {
		r.State, r.Text = job.Killed, k.Error()
	} else if errors.Is(context.Cause(ctx), errStopping) {
		r.State, r.Text = job.Killed, errStopping.Error()
	}
	return r
}

// killed is the cause of a job that was ended by somebody.
type killed struct {
	signal syscall.Signal
	by     string
}

func (k *killed) Error() string {
	text := fmt.Sprintf("killed by signal %d (%s)", int(k.signal), k.signal)
	if k.by != "" {
		text += " from " + k.by
	}
	return text
}

// Signal is what the processes of the job get first.
func (k *killed) Signal() syscall.Signal { return k.signal }

// jobTable is the jobs that run now. It implements module.JobTable.
type jobTable struct {
	mu      sync.Mutex
	running map[salt.JID]*runningJob
	slots   chan struct{} // nil for no limit
	closed  bool
	idle    sync.WaitGroup
}

type runningJob struct {
	module.Running
	cancel context.CancelCauseFunc
	table  *jobTable
}

// newJobTable makes a table for at most limit jobs at a time; 0 or less is no
// limit.
func newJobTable(limit int) *jobTable {
	t := &jobTable{running: map[salt.JID]*runningJob{}}
	if limit > 0 {
		t.slots = make(chan struct{}, limit)
	}
	return t
}

// spawn runs f in a goroutine that stop waits for; after stop it does nothing.
func (t *jobTable) spawn(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.idle.Go(f)
	}
}

// begin waits for a free slot and books the job.
func (t *jobTable) begin(ctx context.Context, e *job.Envelope) (context.Context, *runningJob, error) {
	if t.slots != nil {
		select {
		case t.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &runningJob{cancel: cancel, table: t, Running: module.Running{
		JID: e.JID, Function: e.Commands[0].Function, PID: syscall.Getpid(), Args: e.Commands[0].Args,
		Target: e.Target, TargetType: e.TargetType, Returner: e.Returner, User: e.User, Started: time.Now(),
	}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		cancel(errStopping)
		t.release()
		return nil, nil, errStopping
	}
	t.running[e.JID] = r
	return ctx, r, nil
}

func (t *jobTable) release() {
	if t.slots != nil {
		<-t.slots
	}
}

func (r *runningJob) end() {
	r.cancel(nil)
	r.table.mu.Lock()
	delete(r.table.running, r.JID)
	r.table.mu.Unlock()
	r.table.release()
}

func (t *jobTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.running)
}

func (t *jobTable) has(jid salt.JID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[jid] != nil
}

// List implements module.JobTable.
func (t *jobTable) List() []module.Running {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]module.Running, 0, len(t.running))
	for _, r := range t.running {
		list = append(list, r.Running)
	}
	slices.SortFunc(list, func(a, b module.Running) int { return a.Started.Compare(b.Started) })
	return list
}

// Signal implements module.JobTable. Every signal ends the job: its functions are
// no processes, and what they started is ended with them.
func (t *jobTable) Signal(jid salt.JID, sig syscall.Signal, by string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.running[jid]
	if r == nil {
		return fmt.Errorf("no job %s is running here", jid)
	}
	r.cancel(&killed{sig, by})
	return nil
}

// stop ends all jobs and waits for them, at most for the given time. It returns
// how many were still running then.
func (t *jobTable) stop(cause error, wait time.Duration) int {
	t.mu.Lock()
	t.closed = true
	for _, r := range t.running {
		r.cancel(cause)
	}
	t.mu.Unlock()
	done := make(chan struct{})
	go func() { t.idle.Wait(); close(done) }()
	select {
	case <-done:
		return 0
	case <-time.After(wait):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.running)
}

// recoverJobs puts what a kill or a full disk has left of jobs into the outboxes.
func (m *Minion) recoverJobs(ctx context.Context) error {
	return m.reserves.Recover(func(of outbox.Reserved, ret protocol.Return) error {
		if !m.seen.Has(of.JID) || len(m.boxes) == 0 {
			return nil // it was never begun
		}
		m.log.Warn("a job was under way when the minion ended", "jid", of.JID, "state", ret.State)
		return m.boxes.Named(of.Box).Put(ctx, outbox.Outgoing{Op: "ret." + string(of.JID), Body: ret, ID: returnName(of.JID)})
	})
}

// returnName names the return of a job in the outbox: after a kill it is not put there
// twice.
func returnName(jid salt.JID) string { return "job/" + string(jid) }

// sleep returns false when ctx has ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
