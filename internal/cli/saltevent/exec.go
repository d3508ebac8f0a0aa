package saltevent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/eventhandler"
	"github.com/brinebus/brine/internal/salt"
)

func execSpec() cli.Spec {
	return cli.Spec{
		Complete: complete,
		Synopsis: []string{"[options] -- PROGRAM [ARGUMENT...]"},
		Summary: "Run a program for each event: its data on standard input, the rest in SALT_EVENT_TAG, SALT_EVENT_FROM, SALT_EVENT_SEQ, " +
			"SALT_EVENT_STAMP, SALT_EVENT_ATTEMPT and SALT_EVENT_ID. Events of one sender are handled in order, those of several side by side. " +
			"An event counts as done when the program ends with 0, or when its retries are used up and it is kept as a dead letter (salt-event dead). " +
			"With --durable every event is handled at least once; one that is handled again has the same SALT_EVENT_ID.",
		Examples: []string{
			"salt-event exec --tag deploy/ --durable deployer -- /usr/local/bin/deploy",
			"salt-event exec --tag alarm/ --parallel 4 --time-limit 30s -- sh -c 'mail -s \"$SALT_EVENT_TAG\" root'",
		},
		Flags: slices.Concat(execFlags(), busFlags(), chooseFlags()[:5]),
		Run:   execute,
	}
}

func execFlags() []urcli.Flag {
	const group = "Program"
	return []urcli.Flag{
		&urcli.StringFlag{Category: group, Name: "durable", Usage: "keep the position under `NAME` and go on there; one at a time"},
		&urcli.StringFlag{Category: group, Name: "name", Usage: "the `NAME` of this handler among the dead letters; without it that of --durable, or of the program"},
		&urcli.IntFlag{Category: group, Name: "parallel", Aliases: []string{"p"}, Value: runtime.NumCPU(), Usage: "run `N` programs at once, at most"},
		&urcli.StringFlag{Category: group, Name: "time-limit", Value: "1m", Usage: "end a program, and all that it started, after `TIME`"},
		&urcli.IntFlag{Category: group, Name: "retries", Value: 3, Usage: "try again `N` times"},
		&urcli.StringFlag{Category: group, Name: "backoff", Value: "1s", Usage: "wait `TIME` before the first retry, twice as long before each further one"},
		&urcli.IntFlag{Category: group, Name: "count", Usage: "stop after `N` events"},
		&urcli.BoolFlag{Category: group, Name: "until-end", Usage: "stop behind what is stored now"},
		&urcli.StringFlag{Category: group, Name: "ready-file", Usage: "make `FILE` once the handler listens"},
	}
}

// executor is a running exec command.
type executor struct {
	name     string
	bus      string
	parallel int
	program  eventhandler.Program
	retries  int
	backoff  time.Duration
	session  *session
	env      *cli.Env
	confirm  *confirmer
	done     handled
}

// handled is how far an executor has come: in the own journal, and in those of the other members of
// a cluster.
type handled struct {
	mu      sync.Mutex
	confirm *confirmer
	own     string // the name of the own journal, in a cluster
	seq     uint64
	at      event.Position
}

// pass records that everything up to seq in a journal is done.
func (p *handled) pass(journal string, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if journal == p.own {
		p.seq = max(p.seq, seq)
	} else {
		p.at.Pass(journal, seq)
	}
	text := ""
	if len(p.at) > 0 {
		text = p.at.String()
	}
	p.confirm.done(p.seq, text)
}

// begin sets the name of the own journal.
func (p *handled) begin(own string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = own
}

func execute(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	h, q, chosen, err := readHandler(env, opts)
	if err != nil {
		return err
	}
	if h.session, err = openSession(ctx, env, newConnector(env, opts)); err != nil {
		return err
	}
	defer h.session.close()
	src := &source{session: h.session, env: env, q: q, onReady: func(*brine.Listener) error { return readyFile(opts) }}
	defer src.close()
	h.confirm = newConfirmer(h.session, q.Durable)
	h.done = handled{confirm: h.confirm, at: event.Position{}}
	err = h.serve(ctx, src, chosen, opts.Int("count"))
	unconfirmed := h.confirm.stop(src)
	if errors.Is(err, errEnough) || errors.Is(err, io.EOF) {
		return chosen.verdict(unconfirmed)
	}
	return client.Error(err)
}

func readHandler(env *cli.Env, opts *urcli.Context) (*executor, brine.ListenOptions, *filter, error) {
	words := opts.Args().Slice()
	q := brine.ListenOptions{
		Members: true, Tags: opts.StringSlice("tag"), Match: opts.String("match"), From: opts.StringSlice("from"),
		Durable: opts.String("durable"), UntilEnd: opts.Bool("until-end"),
	}
	if len(words) == 0 {
		return nil, q, nil, salt.WithHint(cli.Usagef("a program is needed"), "for example: salt-event exec --tag mytag -- /usr/local/bin/handler")
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		return nil, q, nil, cli.Fail(cli.Usage, err)
	}
	if opts.Int("parallel") < 1 || opts.Int("retries") < 0 || opts.Int("count") < 0 {
		return nil, q, nil, cli.Usagef("option --parallel must be above zero; --retries and --count cannot be negative")
	}
	limit, err := cli.Duration(opts, "time-limit", time.Millisecond)
	if err != nil {
		return nil, q, nil, err
	}
	backoff, err := cli.Duration(opts, "backoff", 0)
	if err != nil {
		return nil, q, nil, err
	}
	if _, err := event.NewMatcher(event.MatchType(q.Match), q.Tags); err != nil {
		return nil, q, nil, cli.Fail(cli.Usage, err)
	}
	chosen, err := newFilter(env, opts.String("filter"))
	if err != nil {
		return nil, q, nil, err
	}
	if err := setSince(&q, opts.String("since"), time.Now()); err != nil {
		return nil, q, nil, err
	}
	if q.UntilEnd && q.FromSeq == 0 && q.Since.IsZero() && q.Durable == "" {
		q.FromSeq = 1
	}
	name := firstOf(opts.String("name"), q.Durable, words[0])
	return &executor{
		name: name, bus: opts.String("bus"), parallel: opts.Int("parallel"), retries: opts.Int("retries"), backoff: backoff, env: env,
		program: eventhandler.Program{Args: words, Limit: limit, Env: os.Environ(), Stdout: env.Stdout, Stderr: env.Stderr},
	}, q, chosen, nil
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// serve passes events to the program until src ends, count events were handled, or ctx ends. It
// returns when no program is running any more.
func (h *executor) serve(ctx context.Context, src *source, chosen *filter, count int) error {
	run := (&eventhandler.Handler{
		Parallel: h.parallel, Retries: h.retries, Backoff: h.backoff, Done: h.done.pass, KeepDead: h.keepDead,
		Do: func(ctx context.Context, i eventhandler.Item, attempt int) (string, error) {
			return h.program.Run(ctx, i.Stdin(), i.Vars(h.bus, h.name, attempt))
		},
	}).Begin(ctx)
	feeding, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(run.Context(), stop)()
	err := h.feed(feeding, src, chosen, run, count)
	if failed := run.End(); failed != nil && !errors.Is(err, errEnough) {
		return failed
	}
	return err
}

func (h *executor) feed(ctx context.Context, src *source, chosen *filter, run *eventhandler.Run, count int) error {
	for n := 0; ; {
		got, err := src.next(ctx)
		if err != nil {
			return err
		}
		h.done.begin(got.own)
		for _, line := range got.lines {
			ok, err := chosen.passes(line)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			i, err := eventhandler.ReadItem(line, got.own)
			if err != nil {
				return err
			}
			if err := run.Put(i); err != nil {
				return err
			}
			if n++; n == count {
				return errEnough
			}
		}
		run.Pass(got.own, got.passed)
		at, err := event.ReadPositions(got.at)
		if err != nil {
			return err
		}
		for journal, seq := range at {
			run.Pass(journal, seq)
		}
	}
}

// keepDead stores an event as a dead letter. Then it counts as done.
func (h *executor) keepDead(ctx context.Context, f eventhandler.Failure) error {
	h.env.Warn(fmt.Errorf("event %d (%s) is given up after %s: %w", f.Event.Seq, f.Event.Tag, salt.Count(f.Attempts, "attempt"), f.Err))
	letter := brine.DeadLetter(*f.Letter(h.name, h.program.Args))
	err := h.session.ask(ctx, func(c *brine.Conn) error { return c.KeepDeadLetter(ctx, letter) })
	if err != nil {
		return fmt.Errorf("keep event %d as a dead letter: %w", f.Event.Seq, err)
	}
	return nil
}
