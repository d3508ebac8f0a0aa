package saltevent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
)

// TimedOut is the exit code if --timeout has ended a command, as with timeout(1).
const TimedOut = 124

func listenSpec() cli.Spec {
	return cli.Spec{
		Complete: complete,
		Synopsis: []string{"[options]"},
		Summary: "Print events as they come, one JSON document a line, until Ctrl-C, --count or --timeout. " +
			"When the daemon was away it goes on where it stopped. With --durable that position is kept: a later listener of the same name, " +
			"also after a kill, begins there; only one at a time may use it.",
		Examples: []string{
			"salt-event listen --tag mytag", "salt-event listen --tag salt/job --count 1 --timeout 30s", "salt-event listen --since 1h --until-end --format tag",
			`salt-event listen --tag salt/job/ --filter '(.data.retcode // 0) != 0'`, "salt-event listen --durable mailer --tag alarm/ | while read -r e; do notify \"$e\"; done",
		},
		Flags: append(slices.Concat(busFlags(), chooseFlags()),
			&urcli.IntFlag{Category: "Events", Name: "count", Usage: "stop after `N` events"},
			&urcli.BoolFlag{Category: "Events", Name: "until-end", Usage: "stop behind what is stored now"},
			&urcli.StringFlag{Category: "Events", Name: "durable", Usage: "keep the position under `NAME` and go on there; an event counts as done once its line was written"},
			&urcli.BoolFlag{Category: "Events", Name: "no-reconnect", Usage: "end with code 69 when the daemon goes away"},
			&urcli.StringFlag{Category: "Events", Name: "ready-file", Usage: "make `FILE` once the listener stands: what is fired from then on is heard"}),
		Run: func(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
			return listen(ctx, env, opts, opts.Int("count"))
		},
	}
}

// chooseFlags select which events, from where on, how long, and in what format.
func chooseFlags() []urcli.Flag {
	return []urcli.Flag{
		&urcli.StringSliceFlag{Category: "Events", Name: "tag", Usage: "only tags that begin with `TAG`, or see --match; may be repeated"},
		&urcli.StringFlag{Category: "Events", Name: "match", Value: string(event.StartsWith), Usage: "compare tags by `HOW`: " + event.MatchTypes},
		&urcli.StringSliceFlag{Category: "Events", Name: "from", Usage: "only events of the sender `ID`: a minion, or user:NAME; a shell pattern; may be repeated"},
		&urcli.StringFlag{Category: "Events", Name: "filter", Usage: "only events for which the jq `EXPR` is true; its input is the whole event"},
		&urcli.StringFlag{Category: "Events", Name: "since", Usage: "begin with what is stored since `WHEN`: 1h ago, a moment, or the event with this seq"},
		&urcli.StringFlag{Category: "Events", Name: "timeout", Aliases: []string{"t"}, Usage: "stop after `TIME`, as in 30s; the exit code is 124 then"},
		&urcli.StringFlag{Category: "Events", Name: "format", Value: "json", Usage: "print events as `FORM`: " + formats},
		&urcli.StringFlag{Category: "Events", Name: "template", Usage: "print `TEXT` for each event, a template of Go: '{{.tag}} {{.data.message}}'"},
	}
}

var (
	errEnough  = errors.New("as many events as asked for")
	errTimeout = errors.New("the time is up")
)

// choice is the values of chooseFlags.
type choice struct {
	q      brine.ListenOptions
	filter *filter
	show   format
}

func readChoice(env *cli.Env, opts *urcli.Context) (*choice, error) {
	if opts.Args().Len() > 0 {
		return nil, cli.Usagef("unexpected word %q; a tag is given with --tag", opts.Args().First())
	}
	c := &choice{q: brine.ListenOptions{Mirrors: true, Tags: opts.StringSlice("tag"), Match: opts.String("match"), From: opts.StringSlice("from")}}
	var err error
	if _, err = event.NewMatcher(event.MatchType(c.q.Match), c.q.Tags); err != nil {
		return nil, cli.Fail(cli.Usage, err)
	}
	if c.filter, err = newFilter(env, opts.String("filter")); err != nil {
		return nil, err
	}
	if c.show, err = chooseFormat(opts); err != nil {
		return nil, err
	}
	return c, setSince(&c.q, opts.String("since"), time.Now())
}

// limited adds the timeout of --timeout to ctx.
func limited(ctx context.Context, opts *urcli.Context) (context.Context, context.CancelFunc, error) {
	limit, err := cli.Duration(opts, "timeout", 0)
	if err != nil || !opts.IsSet("timeout") {
		return ctx, func() {}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	return ctx, cancel, nil
}

func listen(ctx context.Context, env *cli.Env, opts *urcli.Context, count int) error {
	c, err := readChoice(env, opts)
	if err != nil {
		return err
	}
	if count < 0 {
		return cli.Usagef("option --count cannot be negative")
	}
	c.q.UntilEnd, c.q.Durable = opts.Bool("until-end"), opts.String("durable")
	if c.q.UntilEnd && c.q.FromSeq == 0 && c.q.At == "" && c.q.Since.IsZero() && c.q.Durable == "" {
		c.q.FromSeq = 1
	}
	c.q.Live = !c.q.UntilEnd && c.q.Durable == ""
	return c.print(ctx, env, opts, count)
}

// print prints the selected events, at most count.
func (c *choice) print(ctx context.Context, env *cli.Env, opts *urcli.Context, count int) error {
	ctx, cancel, err := limited(ctx, opts)
	if err != nil {
		return err
	}
	defer cancel()
	ctx, unwatch, err := env.WhileRead(ctx)
	if err != nil {
		return err
	}
	defer unwatch()
	s, err := openSession(ctx, env, newConnector(env, opts))
	if errors.Is(err, errTimeout) {
		return ended(err, opts)
	}
	if err != nil {
		return err
	}
	defer s.close()
	s.stay = opts.Bool("no-reconnect")
	slow := watchSlow(s, env)
	src := &source{session: s, env: env, q: c.q, onReady: func(l *brine.Listener) error {
		slow.begin(l.Position())
		return readyFile(opts)
	}}
	defer src.close()
	confirm := newConfirmer(s, c.q.Durable)
	p := &printer{choice: c, env: env, left: count, counted: count > 0}
	err = p.pump(ctx, src, func(b []byte) error { return slow.write(env.Stdout, b) }, confirm)
	slow.stop()
	unconfirmed := confirm.stop(src)
	return c.filter.verdict(cmp.Or(ended(err, opts), unconfirmed))
}

func readyFile(opts *urcli.Context) error {
	if path := opts.String("ready-file"); path != "" {
		return os.WriteFile(path, nil, 0o644)
	}
	return nil
}

// printer converts events to text.
type printer struct {
	*choice
	env     *cli.Env
	counted bool
	left    int

	before   uint64 // what the batches before have passed
	beforeAt string
}

// doneWith returns the position after lines, given the position before them.
func doneWith(before uint64, beforeAt string, lines [][]byte) (done uint64, doneAt string, err error) {
	at, err := event.ReadPositions(beforeAt)
	if err != nil {
		return 0, "", err
	}
	for _, line := range lines {
		master, seq := event.MasterOf(line), event.SeqOf(line)
		switch {
		case master == "":
			before = max(before, seq)
		default:
			at.Pass(master, seq)
		}
	}
	return before, at.String(), nil
}

// pump prints the events of src until an error. An event is confirmed after its text was
// written.
func (p *printer) pump(ctx context.Context, src *source, write func([]byte) error, confirm *confirmer) error {
	var out []byte
	for {
		got, err := src.next(ctx)
		if err != nil {
			return err
		}
		done, at := got.passed, got.at
		out = out[:0]
		for i, line := range got.lines {
			if out, err = p.add(out, line); err != nil {
				return err
			}
			if p.counted && p.left == 0 {
				if done, at, err = doneWith(p.before, p.beforeAt, got.lines[:i+1]); err != nil {
					return err
				}
				break
			}
		}
		if err := writeAllTo(write, out); err != nil {
			return err
		}
		confirm.done(done, at)
		p.before, p.beforeAt = got.passed, got.at
		if p.counted && p.left == 0 {
			return errEnough
		}
	}
}

func writeAllTo(write func([]byte) error, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return write(b)
}

// add appends the text of one event to out, if it passes the filter.
func (p *printer) add(out, line []byte) ([]byte, error) {
	ok, err := p.filter.passes(line)
	if err != nil || !ok {
		return out, err
	}
	text, err := p.show(out, line)
	if err != nil {
		return out, fmt.Errorf("event %s: %w", nameOf(line), err)
	}
	p.left--
	return text, nil
}

// nameOf returns what identifies an event for people: its sequence, or the tag if it has none.
func nameOf(line []byte) string {
	if seq := event.SeqOf(line); seq > 0 {
		if master := event.MasterOf(line); master != "" {
			return event.Position{master: seq}.String()
		}
		return strconv.FormatUint(seq, 10)
	}
	h, err := event.HeadOf(line)
	if err != nil {
		return "without a tag"
	}
	return h.Tag
}

// ended adds the exit code to the end of a listener.
func ended(err error, opts *urcli.Context) error {
	switch {
	case errors.Is(err, errEnough), errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, errTimeout):
		if strings.HasSuffix(opts.App.Name, "wait") || opts.Int("count") > 0 {
			return cli.Fail(TimedOut, fmt.Errorf("too few events came within %s", opts.String("timeout")))
		}
		return cli.Exit(TimedOut)
	}
	return client.Error(err)
}
