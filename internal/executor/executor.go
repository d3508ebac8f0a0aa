// Package executor runs jobs on a minion: those that its masters send, those of its schedule,
// and mine functions. It takes a signed envelope, decides whether to begin it, runs its
// functions, and delivers the return to each master that has sent it.
//
// Package job verifies envelopes, package module has the functions, and package outbox keeps
// returns for their master.
package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/upstream"
)

// ErrStopping is the cause of contexts that end because the daemon stops.
var ErrStopping = errors.New("the minion is stopping")

// Host is the minion that jobs run on.
type Host interface {
	// ForJob returns the minion as the functions of a job see it. u is the uplink of the job,
	// nil for one of the schedule.
	ForJob(e *job.Envelope, u *upstream.Uplink) *function.Host
	// Grains returns its present grains. They must not be changed.
	Grains() map[string]any
	// Returners prepares the returners that get the returns of a job besides the master.
	Returners(names string, o returner.Options) (returner.Set, error)
}

// Boxes are the outboxes of the minion.
type Boxes interface {
	// Count is how many there are: none without masters.
	Count() int
	// For returns the one for the master of an uplink, and for others of the same system.
	For(uplink int) outbox.Destination
	// Since returns the one for the system that the uplink was of in a generation.
	Since(uplink int, generation string) outbox.Destination
	// Named returns the one for the system that the destination of this name was for.
	Named(name string) outbox.Destination
}

// Options are the settings of an Executor. All but Always and Most are required.
type Options struct {
	ID      salt.MinionID
	Dir     string // the minion's data directory
	Always  bool   // what is written there is synced at once
	Most    int    // jobs that may run at once; 0 or less means no limit
	Host    Host
	Masters *upstream.Uplinks
	Boxes   Boxes
	Log     *slog.Logger
}

// Executor runs the jobs of a minion. It is safe for concurrent use.
type Executor struct {
	Options
	ctx      context.Context // of the daemon
	seen     *job.Seen
	reserves *outbox.Reserves
	origins  upstream.Origins
	booking  chan struct{} // has an entry for each job that waits for the disk
	jobs     *Table
	ids      job.Clock // ids of the minion's own jobs
	refusals logging.Throttle
}

// mostBooking is how many jobs may wait for the disk at a time. Each holds a thread, and jobs
// that arrive while the disk hangs must not use up those of the process.
const mostBooking = 128

// maxRefused is how many lines a minute the log has about messages that are no jobs of the master.
const maxRefused = 10

// Open opens the record of started jobs, and puts what a kill or a full disk has left of them
// into the outboxes. The executor's jobs end with life.
func Open(ctx, life context.Context, o Options) (*Executor, error) {
	x := &Executor{Options: o, ctx: life, booking: make(chan struct{}, mostBooking), jobs: newTable(o.Most)}
	var err error
	if x.seen, err = job.OpenSeen(filepath.Join(o.Dir, "jobs_seen"), o.Always); err != nil {
		return nil, err
	}
	if x.reserves, err = outbox.OpenReserves(o.Dir, o.Always, o.Log); err == nil {
		err = x.recover(ctx)
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// Close is the last call.
func (x *Executor) Close() { x.seen.Close() }

// Jobs returns the running jobs.
func (x *Executor) Jobs() *Table { return x.jobs }

// Stop ends all jobs and waits for them, at most for the given time. It returns how many were
// still running then. Their returns are stored.
func (x *Executor) Stop(wait time.Duration) int { return x.jobs.stop(ErrStopping, wait) }

// box returns the outbox for the masters of an uplink, and for others of the same system.
func (x *Executor) box(u *upstream.Uplink) outbox.Destination { return x.Boxes.For(u.Number) }

// Take handles a message on the job subject. It does not block, since the next job waits for
// it.
func (x *Executor) Take(s *upstream.Session, body []byte) {
	e, err := job.Open(body, s.Master, s.Clock.Now())
	switch {
	case errors.Is(err, job.ErrExpired):
		x.refusals.Log(x.Log, slog.LevelWarn, string(e.JID), 1, "job refused", "jid", e.JID, "err", err)
		x.tell(s, e.JID, late("came"))
		return
	case err != nil: // through NATS servers anything may come, and as often as others like
		x.refusals.Log(x.Log, slog.LevelError, "", maxRefused, "job refused", "err", err)
		return
	}
	if was := x.origins.Claim(e, s); was != upstream.Fresh {
		x.repeated(s, e, was)
		return
	}
	if x.seen.Has(e.JID) {
		x.origins.End(e.JID)
		x.refusals.Log(x.Log, slog.LevelWarn, string(e.JID), 1, "job not begun: it was begun before", "jid", e.JID)
		x.tellAgain(s, e.JID)
		return
	}
	x.jobs.spawn(func() { x.start(s, e) })
}

// late is the report about a job that is not begun because it is too late.
func late(how string) job.Report {
	return job.Report{State: job.Expired, Text: "the job " + how + " after its time"}
}

// start begins a job once it is recorded, which may wait for the disk. One that is not recorded
// when the daemon ends leaves no trace: the master asks about it, and sends it again.
func (x *Executor) start(s *upstream.Session, e *job.Envelope) {
	due, cancel := context.WithDeadlineCause(x.ctx, time.Now().Add(e.Expires.Sub(s.Clock.Now())), job.ErrExpired)
	defer cancel()
	select {
	case x.booking <- struct{}{}:
	case <-due.Done():
		if x.ctx.Err() == nil {
			x.Log.Warn("job refused: it has waited for the disk for too long", "jid", e.JID)
			x.tellAll(x.origins.End(e.JID), e.JID, late("would begin"))
		}
		return
	}
	err := x.reserve(e, x.box(s.Up).Name())
	<-x.booking
	if err != nil {
		x.Log.Error("job refused", "jid", e.JID, "err", err)
		x.tellAll(x.origins.End(e.JID), e.JID, job.Report{State: job.Refused, Text: err.Error()})
		return
	}
	if meant, err := x.isTarget(e, s.Up); err != nil || !meant {
		x.reserves.Drop(e.JID)
		x.tellNotMeant(e, err)
		return
	}
	x.runJob(due, s.Up, e)
}

// errBegun is the error for a job that is recorded already.
var errBegun = errors.New("it was begun before")

// reserve keeps disk space for the return of a job, in the outbox of this name, and then
// records that it begins. If the record survives a power cut, so does the space, and the minion
// can report that the job was ended; if it does not, the job is sent again.
func (x *Executor) reserve(e *job.Envelope, box string) error {
	err := x.reserves.Take(e, box)
	if err == nil {
		err = x.reserves.Sync(e.JID)
	}
	if err != nil {
		x.reserves.Drop(e.JID)
		return fmt.Errorf("the minion cannot keep the return of a job now: %w", err)
	}
	first, err := x.seen.First(e.JID)
	if err == nil && !first {
		err = errBegun
	}
	if err != nil {
		x.reserves.Drop(e.JID)
		return fmt.Errorf("the minion cannot record the job: %w", err)
	}
	return nil
}

// repeated handles a job whose id is running: another master of the same system may have sent
// it too, and then gets the same reports.
func (x *Executor) repeated(s *upstream.Session, e *job.Envelope, was upstream.Claimed) {
	switch was {
	case upstream.Shared:
		x.Log.Debug("job is under way already for another master", "jid", e.JID, "master", s.Name)
		x.tell(s, e.JID, job.Report{State: job.Received})
	case upstream.Another:
		x.Log.Error("job refused: another master has sent another job with this id", "jid", e.JID, "master", s.Name)
		x.tell(s, e.JID, job.Report{State: job.Refused, Text: "another job has this id on the minion"})
	default:
		x.Log.Warn("job not begun: it was begun before", "jid", e.JID)
		x.tellAgain(s, e.JID)
	}
}

// isTarget checks the job's target against the present grains, and the pillar of the master
// that has sent it.
func (x *Executor) isTarget(e *job.Envelope, u *upstream.Uplink) (bool, error) {
	kind, err := target.ParseKind(e.TargetType)
	if err != nil {
		return false, err
	}
	t, err := target.Parse(e.Target, kind, target.Options{Delimiter: e.Delimiter})
	if err != nil {
		return false, err
	}
	f := target.Facts{ID: x.ID}
	if t.NeedsGrains() {
		f.Grains = x.Host.Grains()
	}
	if t.NeedsPillar() {
		f.Pillar = u.Pillar()
	}
	return t.Match(f)
}

// runJob runs a job, unless it has expired while waiting for a free slot, and delivers its
// return to the master.
func (x *Executor) runJob(due context.Context, u *upstream.Uplink, e *job.Envelope) {
	var state atomic.Value
	state.Store(job.Received)
	waiting := x.heartbeat(e, &state)
	ctx, run, err := x.jobs.begin(x.ctx, due, e)
	waiting()
	if errors.Is(err, job.ErrExpired) {
		x.Log.Warn("job refused: it has waited for the disk, or for a free place, for too long", "jid", e.JID)
		x.finish(e, late("would begin"))
		return
	}
	if err != nil {
		x.finish(e, job.Report{State: job.Refused, Text: err.Error()})
		return
	}
	back, err := x.Host.Returners(e.Returner, options(e))
	if err != nil {
		run.end()
		x.Log.Warn("job refused", "jid", e.JID, "err", err)
		x.finish(e, job.Report{State: job.Refused, Text: err.Error() + "; " + salt.Hint(err)})
		return
	}
	x.Log.Info("job", "jid", e.JID, "fun", e.Fun(), "user", e.User)
	stop := x.heartbeat(e, &state)
	report := x.execute(ctx, e, u, func() { state.Store(job.Running) })
	delivered := x.giveBack(e, report, back)
	run.end()
	select { // a large return, or one of thousands, takes long
	case <-delivered:
	case <-x.ctx.Done():
	}
	stop()
}

// execute runs the commands of a job, one after the other. It calls begun when it is known that
// the minion has the function.
func (x *Executor) execute(ctx context.Context, e *job.Envelope, u *upstream.Uplink, begun func()) job.Report {
	host := x.Host.ForJob(e, u)
	if e.Follow && u != nil {
		f := x.follow(e, u)
		defer f.end()
		host.Output = f
	}
	run := func(c job.Command) function.Result {
		return x.run(ctx, function.Call{JID: e.JID, Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: host, Reach: e.Reach, Begun: begun})
	}
	if !e.Compound && len(e.Commands) == 1 {
		return report(ctx, run(e.Commands[0]))
	}
	return compound(ctx, e.Commands, run)
}

// lastGrace is how long a function may take to return once its job was ended: longer than its
// processes have between SIGTERM and SIGKILL.
const lastGrace = 5 * time.Second

// run runs one function. If it does not return although its job was ended, it is abandoned, so
// that the job's slot is free again.
func (x *Executor) run(ctx context.Context, c function.Call) function.Result {
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
	x.Log.Error("a function does not return although its job was ended; it is abandoned", "jid", c.JID, "fun", c.Function)
	cause := context.Cause(ctx)
	return function.Result{Return: "ERROR: " + cause.Error(), Retcode: 1, Err: cause}
}

// recover puts what a kill or a full disk has left of jobs into the outboxes.
func (x *Executor) recover(ctx context.Context) error {
	return x.reserves.Recover(func(of outbox.Reserved, ret protocol.Return) error {
		if !x.seen.Has(of.JID) || x.Boxes.Count() == 0 {
			return nil // it was never begun
		}
		x.Log.Warn("a job was under way when the minion ended", "jid", of.JID, "state", ret.State)
		return x.Boxes.Named(of.Box).Put(ctx, outbox.Outgoing{Op: "ret." + string(of.JID), Body: ret, ID: returnName(of.JID)})
	})
}

// firstHeartbeat is when a longer job sends its first heartbeat. The return of a quicker one is
// also its receipt: so thousands of minions send only half as many messages.
const firstHeartbeat = 150 * time.Millisecond

// heartbeat sends the state of the job, soon and then regularly, until stop is called. Only
// masters that have sent the job get it; others would not know the job.
func (x *Executor) heartbeat(e *job.Envelope, state *atomic.Value) (stop func()) {
	every := max(e.Heartbeat.Duration(), 100*time.Millisecond)
	done := make(chan struct{})
	senders := x.origins.Of(e.JID) // the latest senders get heartbeats until the return is delivered
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTimer(min(firstHeartbeat, every))
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if now := x.origins.Of(e.JID); len(now) > 0 {
					senders = now
				}
				x.tellAll(senders, e.JID, job.Report{State: state.Load().(job.State)})
				t.Reset(every)
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
