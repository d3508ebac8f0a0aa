package reactor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/eventhandler"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/value"
)

// Events are the journals whose events this master handles; each handler reads each of them from
// its own position. The master's event bus is one.
type Events interface {
	// Own is the journal of this master.
	Own() *eventbus.Handled
	// Each calls serve for each of them, see eventbus.Bus.
	Each(ctx context.Context, serve func(feed, life context.Context, j *eventbus.Handled))
}

// DeadLetters stores the events that a handler has failed to handle.
type DeadLetters interface {
	Add(ctx context.Context, l *protocol.DeadLetter) error
	List(ctx context.Context, name string, seq uint64) ([]protocol.DeadLetter, error)
	// Take takes one of them, nil if it is gone; nobody else gets it meanwhile.
	Take(ctx context.Context, l protocol.DeadLetter) (*eventbus.Taken, error)
}

// Options are the settings of a Reactor.
type Options struct {
	Events      Events
	DeadLetters DeadLetters
	// Start starts the job of the handler of that name, if it may.
	Start func(ctx context.Context, name string, q protocol.Publish) error
	Log   *slog.Logger
}

// Reactor runs rules. Its methods may be called concurrently.
type Reactor struct {
	Options
	ctx      context.Context
	wg       sync.WaitGroup
	throttle logging.Throttle // of failures, by the name of the rule

	mu      sync.Mutex
	running map[string]*reaction // by the name of the rule
}

// reaction is one running handler. Each reads each journal from its own position.
type reaction struct {
	rule *Rule
	stop context.CancelFunc // no further events; runs under way are completed
	held chan struct{}      // closed once it has its position, or could not get it
	done chan struct{}
}

// New returns a Reactor without rules. The end of ctx ends everything under way.
func New(ctx context.Context, o Options) *Reactor { return &Reactor{Options: o, ctx: ctx} }

// Wait returns when nothing is under way any more, after the end of the context.
func (x *Reactor) Wait() { x.wg.Wait() }

// Set puts rules in force. Unchanged ones go on; a changed one begins when its predecessor has
// completed. All others have their position when Set returns, so that they get every event
// fired from then on.
func (x *Reactor) Set(rules []*Rule) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.running
	x.running = map[string]*reaction{}
	for _, r := range rules {
		if old := before[r.Name]; old != nil && old.rule.Same(r) {
			x.running[r.Name] = old
		}
	}
	for name, old := range before {
		if x.running[name] != old {
			old.stop()
		}
	}
	for _, r := range rules {
		if x.running[r.Name] != nil {
			continue
		}
		begun := x.begin(r, before[r.Name])
		x.running[r.Name] = begun
		if before[r.Name] == nil {
			<-begun.held
		}
	}
}

func (x *Reactor) begin(r *Rule, before *reaction) *reaction {
	feeding, stop := context.WithCancel(x.ctx)
	begun := &reaction{rule: r, stop: stop, held: make(chan struct{}), done: make(chan struct{})}
	x.wg.Go(func() {
		defer close(begun.done)
		defer stop()
		if before != nil {
			<-before.done
		}
		x.serve(feeding, r, sync.OnceFunc(func() { close(begun.held) }))
	})
	return begun
}

// pause is how long a handler waits after it had to stop.
const pause = 5 * time.Second

// serve serves one rule until feeding ends.
func (x *Reactor) serve(feeding context.Context, r *Rule, held func()) {
	defer held()
	if err := x.Events.Own().Create(feeding, r.Name); err != nil && feeding.Err() == nil {
		x.Log.Error("handler of the reactor has no position yet", "handler", r.Name, "err", err)
	}
	held()
	x.Events.Each(feeding, func(feed, life context.Context, j *eventbus.Handled) { x.serveJournal(feed, life, r, j) })
}

// serveJournal serves one rule and one journal until feed ends.
func (x *Reactor) serveJournal(feed, life context.Context, r *Rule, j *eventbus.Handled) {
	for feed.Err() == nil {
		err := x.serveOnce(feed, life, r, j)
		if feed.Err() != nil {
			return
		}
		logOf(x.Log, r, j).Error("handler of the reactor stopped, starting again", "err", err)
		backoff.Sleep(feed, pause)
	}
}

func logOf(log *slog.Logger, r *Rule, j *eventbus.Handled) *slog.Logger {
	log = log.With("handler", r.Name)
	if j.Name() != "" {
		log = log.With("journal", j.Name())
	}
	return log
}

// serveOnce serves one rule from its position in a journal on, until feeding or life ends or
// something fails. It returns when nothing of it is under way any more.
func (x *Reactor) serveOnce(feeding, life context.Context, r *Rule, j *eventbus.Handled) error {
	log := logOf(x.Log, r, j)
	position, err := j.Keep(feeding, r.Name)
	if err != nil {
		return err
	}
	defer position.Close()
	if n := position.Lost(); n > 0 {
		log.Warn("events were removed from the journal before this handler got them", "count", n)
	}
	log.Info("handler of the reactor at work", "tag", r.Tag, "seq", position.Next())
	living, end := context.WithCancel(x.ctx)
	defer end()
	defer context.AfterFunc(life, end)()
	run := x.handler(r, j, position, log).Begin(living)
	feeding, stop := context.WithCancel(feeding)
	defer stop()
	defer context.AfterFunc(run.Context(), stop)()
	err = j.Hand(feeding, position.Next(), r.Matches, func(line []byte) error {
		i, err := eventhandler.ReadItem(line, j.Name())
		if err != nil {
			return err
		}
		return run.Put(i)
	}, func(seq uint64) { run.Pass(j.Name(), seq) })
	if failed := run.End(); failed != nil {
		return failed
	}
	return err
}

// handler returns the rule's settings for package eventhandler.
func (x *Reactor) handler(r *Rule, j *eventbus.Handled, position *eventbus.Position, log *slog.Logger) *eventhandler.Handler {
	return &eventhandler.Handler{
		Parallel: r.Parallel, Retries: r.Retries, Backoff: r.Backoff,
		Done:   func(_ string, seq uint64) { position.Done(seq) },
		Passed: func(_ string, seq uint64) { position.Passed(seq) },
		Do: func(ctx context.Context, i eventhandler.Item, attempt int) (string, error) {
			return x.do(ctx, r, i, attempt)
		},
		KeepDead: func(ctx context.Context, f eventhandler.Failure) error { return x.keepDead(ctx, r, f) },
		Again: func(ctx context.Context, seq uint64) (eventhandler.Item, bool, error) {
			line, there, err := j.Again(ctx, seq)
			if err != nil || !there {
				return eventhandler.Item{}, false, err
			}
			i, err := eventhandler.ReadItem(line, j.Name())
			return i, true, err
		},
		Gone: func(seq uint64) { log.Warn("an event was removed before its turn came", "seq", seq) },
	}
}

// maxLines is how many log lines in a minute one handler may cause by failures, and by events
// that it gives up: senders of events could choose how many.
const maxLines = 20

// do runs a rule for one event, once.
func (x *Reactor) do(ctx context.Context, r *Rule, i eventhandler.Item, attempt int) (stderr string, err error) {
	log := x.Log.With("handler", r.Name, "tag", i.Event.Tag, "seq", i.Event.Seq)
	if r.Job != nil {
		err = x.start(ctx, r, i)
	} else {
		p := eventhandler.Program{Args: r.Program, Limit: r.Limit, Env: process.Environ(false), Stdout: io.Discard, Stderr: io.Discard}
		stderr, err = p.Run(ctx, i.Stdin(), i.Vars("master", r.Name, attempt))
	}
	if err != nil && ctx.Err() == nil {
		x.throttle.Log(log, slog.LevelWarn, "failed "+r.Name, maxLines, "handler failed", "attempt", attempt, "err", err)
		return stderr, err
	}
	log.Debug("event handled", "attempt", attempt)
	return stderr, err
}

// start starts the job of a rule. If the same event starts it again, after a kill at the wrong
// moment, the metadata of both jobs shows that, also if they were started by two members of a
// cluster.
func (x *Reactor) start(ctx context.Context, r *Rule, i eventhandler.Item) error {
	q, err := r.Job.Publish(ctx, i.Line)
	if err != nil {
		return err
	}
	meta := map[string]any{"reactor": r.Name, "event_id": i.ID(), "event_seq": i.Event.Seq}
	if i.Journal != "" {
		meta["event_journal"] = i.Journal
	}
	q.Metadata = value.Value{V: meta}
	return x.Start(ctx, r.Name, q)
}

// keepDead stores an event that a handler could not handle. Then it counts as done.
func (x *Reactor) keepDead(ctx context.Context, r *Rule, f eventhandler.Failure) error {
	x.throttle.Log(x.Log, slog.LevelError, "dead "+r.Name, maxLines, "event given up by a handler of the reactor, kept as a dead letter", "handler", r.Name, "tag", f.Event.Tag, "seq", f.Event.Seq,
		"attempts", f.Attempts, "err", f.Err)
	if err := x.DeadLetters.Add(ctx, f.Letter(r.Name, retryCommand(r, f.Event.Seq))); err != nil {
		return fmt.Errorf("keep event %d as a dead letter: %w", f.Event.Seq, err)
	}
	return nil
}

// Retry handles dead letters again, one or all of them, and deletes those that succeed. It
// returns their sequences.
func (x *Reactor) Retry(ctx context.Context, name string, seq uint64) ([]uint64, error) {
	x.mu.Lock()
	begun := x.running[name]
	x.mu.Unlock()
	if begun == nil {
		return nil, fmt.Errorf("the reactor has no handler %q", name)
	}
	letters, err := x.DeadLetters.List(ctx, name, seq)
	if err != nil {
		return nil, err
	}
	var done []uint64
	var failed []error
	for _, l := range letters {
		was, err := x.retry(ctx, begun.rule, l)
		if err != nil {
			failed = append(failed, fmt.Errorf("event %d: %w", l.Seq, err))
			continue
		}
		if was {
			done = append(done, l.Seq)
		}
	}
	return done, errors.Join(failed...)
}

// retry handles one dead letter again, which nobody else does at the same time, here or at another
// member of a cluster. It is false if somebody has done so, or dropped it, since it was listed.
func (x *Reactor) retry(ctx context.Context, r *Rule, l protocol.DeadLetter) (bool, error) {
	taken, err := x.DeadLetters.Take(ctx, l)
	if taken == nil {
		return false, err
	}
	i, err := eventhandler.ReadItem(taken.Letter.Event, l.Journal)
	if err == nil {
		within, end := taken.Context(ctx)
		_, err = x.do(within, r, i, taken.Letter.Attempts+1)
		end()
	}
	if err != nil {
		taken.Release()
		return false, err
	}
	return true, taken.Done(ctx)
}

// Reactions returns the rules in force, sorted by name. It implements runner.Reactor.
func (x *Reactor) Reactions() []runner.Reaction {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []runner.Reaction
	for _, name := range slices.Sorted(maps.Keys(x.running)) {
		r := x.running[name].rule
		list = append(list, runner.Reaction{Name: r.Name, Tag: r.Tag, From: r.From, Command: r.Command()})
	}
	return list
}

// retryCommand is the command for salt-event dead to try a dead letter again.
func retryCommand(r *Rule, seq uint64) []string {
	if r.Job == nil {
		return r.Program
	}
	return eventhandler.RetryCommand(r.Name, seq)
}
