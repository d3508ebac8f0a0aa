package saltevent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/sink"
)

func sinkSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"--config FILE [options]"},
		Summary: "Collect events into files, SQLite, PostgreSQL, MySQL and MariaDB, Graphite, InfluxDB and web services, by the rules in FILE. " +
			"Each rule keeps its own position: a destination that is away stops its own rule only, and gets what it missed when it is back. " +
			"SIGHUP reads FILE anew and begins files anew; SIGTERM ends it.",
		Examples: []string{"salt-event sink --config /etc/salt/sink.yaml --check", "salt-event sink --config /etc/salt/sink.yaml"},
		Flags: append(busFlags(),
			&urcli.StringFlag{Category: "Events", Name: "config", Usage: "the rules are in `FILE`"},
			&urcli.BoolFlag{Category: "Events", Name: "check", Usage: "check the rules, try every destination, change nothing and end"},
		),
		Daemon: true,
		Run:    runSink,
	}
}

func runSink(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	if opts.Args().Len() > 0 {
		return cli.Usagef("unexpected word %q", opts.Args().First())
	}
	load := func() (*sink.Config, error) {
		c, err := sink.Load(opts.String("config"))
		return c, cli.Fail(cli.Usage, err)
	}
	if opts.String("config") == "" {
		return salt.WithHint(cli.Usagef("option --config is needed"), "it names the file with the rules, as /etc/salt/sink.yaml")
	}
	if opts.Bool("check") {
		return checkSink(ctx, env, load)
	}
	log, err := env.OpenLog(opts, cli.LogSettings{Level: "info", FileRequired: true})
	if err != nil {
		return err
	}
	defer log.Close()
	dial := newConnector(env, opts) // the same for all rules, so that it asks for a password only once
	hangup, stop := daemon.Hangups()
	defer stop()
	err = sink.Run(ctx, sink.Options{
		Hangup: hangup, Log: log.Logger,
		Load: func() (*sink.Config, error) {
			if err := log.Reopen(); err != nil {
				log.Warn("log file not reopened", "err", err)
			}
			return load()
		},
		Listen: func(r sink.Rule) sink.Source { return newSinkSource(env, dial, r) },
		Ready: func() {
			if err := daemon.Notify("READY=1"); err != nil {
				log.Warn("cannot notify systemd", "err", err)
			}
		},
	})
	var signal *cli.SignalError
	if errors.As(err, &signal) {
		log.Info("stopped")
		return nil
	}
	return err
}

// checkSink checks the destinations of the configuration, one line for each rule.
func checkSink(ctx context.Context, env *cli.Env, load func() (*sink.Config, error)) error {
	c, err := load()
	if err != nil {
		return err
	}
	for _, text := range c.Warnings() {
		env.Warn(errors.New(text))
	}
	failed := 0
	sink.Check(ctx, c, func(r sink.Rule, err error) {
		if err == nil {
			fmt.Fprintf(env.Stdout, "%s: %s: ok\n", r.Name, r)
			return
		}
		failed++
		env.Warn(salt.WithHint(fmt.Errorf("rule %q: %s: %w", r.Name, r, err), salt.Hint(err)))
	})
	if failed > 0 {
		return fmt.Errorf("%d of %d rules have a destination that cannot be used now", failed, len(c.Rules))
	}
	return nil
}

// sinkSource is a rule's position in the journal. It has its own connection: an answer that
// nobody reads can be given up only by ending the connection.
type sinkSource struct {
	session *session
	src     *source
	heard   time.Time // when something last came, or the events were requested
	held    int       // the listener that held the position when Hold last returned, see source.begins
}

// silence is how long nothing may come until the events are requested again: the daemon
// silently gives up on a listener that has read nothing for a minute.
const silence = 2 * time.Minute

func newSinkSource(env *cli.Env, dial connector, r sink.Rule) *sinkSource {
	s := &session{env: env, dial: dial}
	q := brine.ListenOptions{Members: true, Tags: r.Tags, Match: string(r.Match), From: r.Senders, Durable: r.Position}
	if r.Since.All {
		q.FromSeq = 1
	} else if r.Since.Back > 0 {
		q.Since = time.Now().Add(-r.Since.Back)
	}
	src := &source{session: s, env: env, q: q, onReady: func(*brine.Listener) error { return nil }}
	return &sinkSource{session: s, src: src, heard: time.Now()}
}

// Hold returns when the position is held. A listener whose connection is lost does not know that yet,
// so it asks the daemon: a confirmation of nothing changes nothing, and only the holder may send it.
func (s *sinkSource) Hold(ctx context.Context) (done event.Position, anew bool, err error) {
	err = s.ask(ctx, func(c *brine.Conn) error { return c.Confirm(ctx, s.src.q.Durable, 0, "") })
	if err != nil || s.held == s.src.begins {
		return nil, false, err
	}
	s.held = s.src.begins
	return s.src.listener.Confirmed(), true, nil
}

// Next returns the events that came. In a cluster each names its journal, so that it is the same
// event, whichever member has sent it.
func (s *sinkSource) Next(ctx context.Context) (lines [][]byte, passed event.Position, err error) {
	var got batch
	err = s.again(ctx, func() error {
		waiting, cancel := context.WithDeadlineCause(ctx, s.heard.Add(silence), errSilence)
		defer cancel()
		got, err = s.src.next(waiting)
		return err
	})
	s.heard = time.Now()
	passed, bad := event.ReadPositions(got.at)
	if bad != nil {
		return nil, nil, errors.Join(err, bad)
	}
	passed[got.own] = got.passed
	if got.own != "" {
		for i, line := range got.lines {
			got.lines[i] = event.NameMaster(line, got.own)
		}
	}
	return got.lines, passed, err
}

var errSilence = errors.New("nothing has come for a long time")

// Confirm stores the position of the rule.
func (s *sinkSource) Confirm(ctx context.Context, done event.Position) error {
	err := s.ask(ctx, func(c *brine.Conn) error {
		own := s.src.listener.Journal() // this may be another member than the one that has sent them
		others := maps.Clone(done)
		delete(others, own)
		at := ""
		if len(others) > 0 {
			at = others.String()
		}
		return c.Confirm(ctx, s.src.q.Durable, done[own], at)
	})
	if errors.Is(err, brine.ErrUsage) { // a new journal was started; the position continues in it
		s.src.env.Warn(err)
		return nil
	}
	return err
}

// KeepDead stores an event as a dead letter. Its command shows people where it comes from; to retry
// it, use salt-event dead with --program.
func (s *sinkSource) KeepDead(ctx context.Context, e sink.Event, reason error) error {
	letter := brine.DeadLetter{
		Name: s.src.q.Durable, Seq: e.Seq, Journal: e.Journal, Tag: e.Tag, From: e.From, Event: e.Line,
		Command: []string{"salt-event", "sink"}, Attempts: 1, Reason: reason.Error(),
	}
	return s.ask(ctx, func(c *brine.Conn) error {
		if e.Seq <= s.src.listener.Confirmed()[e.Journal] {
			return nil // by another sink, which has kept it if it was refused there too
		}
		return c.KeepDeadLetter(ctx, letter)
	})
}

// ask sends a request on the connection that holds the position.
func (s *sinkSource) ask(ctx context.Context, do func(*brine.Conn) error) error {
	return s.again(ctx, func() error {
		if err := s.src.open(ctx); err != nil {
			return err
		}
		return do(s.src.conn)
	})
}

// again repeats do until it succeeds, ctx ends, or it fails in a way that does not go away when
// the daemon is back.
func (s *sinkSource) again(ctx context.Context, do func() error) error {
	for pauses := new(backoff.Pauses); ; {
		err := do()
		if err == nil {
			return nil
		}
		if s.src.listener == nil || ctx.Err() == nil {
			s.Pause()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !mayPass(err) {
			return client.Error(err)
		}
		if !backoff.Sleep(ctx, pauses.Next(firstPause, lastPause)) {
			return context.Cause(ctx)
		}
	}
}

// mayPass reports whether reconnecting can help against err: the daemon is away, another sink
// holds the position, or this connection no longer does.
func mayPass(err error) bool {
	return passing(err) || errors.Is(err, errSilence) || errors.Is(err, io.EOF) || errors.Is(err, brine.ErrNotFound)
}

// Back makes the source continue after these positions.
func (s *sinkSource) Back(to event.Position) {
	s.Pause()
	at, err := event.ReadPositions(s.src.at)
	if err != nil { // Next returned it when it was read before
		at = event.Position{}
	}
	for journal, seq := range to {
		if journal == "" {
			s.src.seq = seq
			continue
		}
		at[journal] = seq // the own one as well: whichever member this is next, it begins there
	}
	if len(at) > 0 {
		s.src.at = at.String()
	}
}

// Pause closes the connection; the next call makes another.
func (s *sinkSource) Pause() {
	s.src.close()
	s.session.lost(s.src.conn)
	s.heard = time.Now()
}

// Close ends the connection.
func (s *sinkSource) Close() {
	s.src.close()
	s.session.close()
}
