package master

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/handler"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/reactor"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/value"
)

// reactions are the handlers of the reactor at work, by name.
type reactions struct {
	mu      sync.Mutex
	running map[string]*reaction
}

// reaction is one of them. Each reads the journal from a position of its own.
type reaction struct {
	rule *reactor.Rule
	stop context.CancelFunc // no further events; what is under way comes to its end
	held chan struct{}      // closed once it has its position, or could not get it
	done chan struct{}
}

func readReactor(cfg *config.Master) ([]*reactor.Rule, error) {
	return reactor.Parse(cfg.Reactor, cfg.RootDir)
}

// react puts rules in force: what has not changed goes on undisturbed, and what
// has begins when its predecessor has come to its end. All else has its position
// when react returns, so that it gets what is fired from then on.
func (m *Master) react(rules []*reactor.Rule) {
	m.reactor.mu.Lock()
	defer m.reactor.mu.Unlock()
	before := m.reactor.running
	m.reactor.running = map[string]*reaction{}
	for _, r := range rules {
		if old := before[r.Name]; old != nil && old.rule.Same(r) {
			m.reactor.running[r.Name] = old
		}
	}
	for name, old := range before {
		if m.reactor.running[name] != old {
			old.stop()
		}
	}
	for _, r := range rules {
		if m.reactor.running[r.Name] != nil {
			continue
		}
		x := m.startReaction(r, before[r.Name])
		m.reactor.running[r.Name] = x
		if before[r.Name] == nil {
			<-x.held
		}
	}
}

func (m *Master) startReaction(r *reactor.Rule, before *reaction) *reaction {
	feeding, stop := context.WithCancel(m.ctx)
	x := &reaction{rule: r, stop: stop, held: make(chan struct{}), done: make(chan struct{})}
	m.wg.Go(func() {
		defer close(x.done)
		defer stop()
		if before != nil {
			<-before.done
		}
		m.keepReacting(feeding, r, sync.OnceFunc(func() { close(x.held) }))
	})
	return x
}

// reactorPause is how long a handler waits after it had to stop.
const reactorPause = 5 * time.Second

// keepReacting serves one rule until feeding ends.
func (m *Master) keepReacting(feeding context.Context, r *reactor.Rule, held func()) {
	defer held()
	log := m.log.With("handler", r.Name)
	for feeding.Err() == nil {
		err := m.reactOnce(feeding, r, held)
		if feeding.Err() != nil {
			return
		}
		log.Error("handler of the reactor stopped, beginning anew", "err", err)
		select {
		case <-time.After(reactorPause):
		case <-feeding.Done():
		}
	}
}

// reactOnce serves one rule from its position on, until feeding ends or something
// fails. It returns when nothing of it is under way any more.
func (m *Master) reactOnce(feeding context.Context, r *reactor.Rule, held func()) error {
	log := m.log.With("handler", r.Name)
	position, err := m.events.Keep(feeding, r.Name)
	held()
	if err != nil {
		return err
	}
	defer position.Close()
	if n := position.Lost(); n > 0 {
		log.Warn("events were removed from the journal before this handler got them", "count", n)
	}
	log.Info("handler of the reactor at work", "tag", r.Tag, "seq", position.Next())
	run := (&handler.Handler{
		Parallel: r.Parallel, Retries: r.Retries, Backoff: r.Backoff, Done: position.Done,
		Do: func(ctx context.Context, i handler.Item, attempt int) (string, error) {
			return m.reaction(ctx, r, i, attempt)
		},
		KeepDead: func(ctx context.Context, f handler.Failure) error { return m.keepDeadReaction(ctx, r, f) },
		Again: func(ctx context.Context, seq uint64) (handler.Item, bool, error) {
			line, there, err := m.events.Again(ctx, seq)
			if err != nil || !there {
				return handler.Item{}, false, err
			}
			i, err := handler.ReadItem(line)
			return i, true, err
		},
		Gone: func(seq uint64) { log.Warn("an event was removed before its turn came", "seq", seq) },
	}).Begin(m.ctx)
	feeding, stop := context.WithCancel(feeding)
	defer stop()
	defer context.AfterFunc(run.Context(), stop)()
	err = m.events.Hand(feeding, position.Next(), r.Matches, func(line []byte) error {
		i, err := handler.ReadItem(line)
		if err != nil {
			return err
		}
		return run.Put(i)
	}, run.Pass)
	if failed := run.End(); failed != nil {
		return failed
	}
	return err
}

// reaction does what a rule says about one event, once.
func (m *Master) reaction(ctx context.Context, r *reactor.Rule, i handler.Item, attempt int) (stderr string, err error) {
	log := m.log.With("handler", r.Name, "tag", i.Event.Tag, "seq", i.Event.Seq)
	if r.Job != nil {
		err = m.reactionJob(ctx, r, i)
	} else {
		p := handler.Program{Args: r.Program, Limit: r.Limit, Env: process.Environ(false), Stdout: io.Discard, Stderr: io.Discard}
		stderr, err = p.Run(ctx, i.Stdin(), i.Vars("master", r.Name, attempt))
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("handler failed", "attempt", attempt, "err", err)
		return stderr, err
	}
	log.Debug("event handled", "attempt", attempt)
	return stderr, err
}

// reactionJob starts the job of a rule. It is decided about and recorded as
// everybody's is, under the name of the rule, which no user can have. That the
// same event starts it again, after a kill at the wrong moment, can be told by the
// metadata of the two.
func (m *Master) reactionJob(ctx context.Context, r *reactor.Rule, i handler.Item) error {
	q, err := r.Job.Publish(i.Line)
	if err != nil {
		return err
	}
	q.Metadata = value.Value{V: map[string]any{"reactor": r.Name, "event_id": i.ID(), "event_seq": i.Event.Seq}}
	who := m.authz.Reactor(r.Name)
	run, err := m.dispatch.Prepare(ctx, q, who, m.authz.Publish(ctx, who, q))
	if err != nil {
		return err
	}
	run.Begin()
	return nil
}

// keepDeadReaction keeps what a handler could not do. Then it counts as done.
func (m *Master) keepDeadReaction(ctx context.Context, r *reactor.Rule, f handler.Failure) error {
	m.log.Error("event given up by a handler of the reactor, kept as a dead letter", "handler", r.Name, "tag", f.Event.Tag, "seq", f.Event.Seq,
		"attempts", f.Attempts, "err", f.Err)
	if err := m.events.DeadLetters().Add(ctx, f.Letter(r.Name, retryCommand(r, f.Event.Seq))); err != nil {
		return fmt.Errorf("keep event %d as a dead letter: %w", f.Event.Seq, err)
	}
	return nil
}

// retryReaction tries dead letters of a handler again, one or all of them, and
// forgets those that it takes. It returns the places of those.
func (m *Master) retryReaction(ctx context.Context, name string, seq uint64) ([]uint64, error) {
	m.reactor.mu.Lock()
	x := m.reactor.running[name]
	m.reactor.mu.Unlock()
	if x == nil {
		return nil, fmt.Errorf("the reactor has no handler %q", name)
	}
	letters, err := m.events.DeadLetters().List(ctx, name, seq)
	if err != nil {
		return nil, err
	}
	var done []uint64
	var failed []error
	for _, l := range letters {
		i, err := handler.ReadItem(l.Event)
		if err == nil {
			_, err = m.reaction(ctx, x.rule, i, l.Attempts+1)
		}
		if err == nil {
			err = m.events.DeadLetters().Drop(ctx, l)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("event %d: %w", l.Seq, err))
			continue
		}
		done = append(done, l.Seq)
	}
	return done, errors.Join(failed...)
}

// reactionsInForce are the handlers, sorted by name.
func (m *Master) reactionsInForce() []runner.Reaction {
	m.reactor.mu.Lock()
	defer m.reactor.mu.Unlock()
	var list []runner.Reaction
	for _, name := range slices.Sorted(maps.Keys(m.reactor.running)) {
		r := m.reactor.running[name].rule
		list = append(list, runner.Reaction{Name: name, Tag: r.Tag, From: r.From, Command: r.Command()})
	}
	return list
}

// retryCommand is what salt-event dead runs to try a letter again.
func retryCommand(r *reactor.Rule, seq uint64) []string {
	if r.Job == nil {
		return r.Program
	}
	return []string{"salt-run", "reactor.retry", r.Name, strconv.FormatUint(seq, 10)}
}
