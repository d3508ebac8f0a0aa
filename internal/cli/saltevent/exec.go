package saltevent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	urcli "github.com/urfave/cli/v2"

	"brine/internal/cli"
	"brine/internal/cli/client"
	"brine/internal/event"
	"brine/internal/protocol"
	"brine/internal/salt"
)

func execSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options] -- PROGRAM [ARGUMENT...]"},
		Summary: "Run a program for each event: its data on standard input, the rest in SALT_EVENT_TAG, SALT_EVENT_FROM, SALT_EVENT_SEQ, " +
			"SALT_EVENT_STAMP, SALT_EVENT_ATTEMPT and SALT_EVENT_ID. Events of one sender are handled in order, those of several side by side. " +
			"An event counts as done when the program ends with 0, or when its retries are used up and it is kept as a dead letter (salt-event dead). " +
			"With --durable every event is handled at least once; one that is handled again has the same SALT_EVENT_ID.",
		Examples: []string{
			"salt-event exec --tag deploy/ --durable deployer -- /usr/local/bin/deploy",
			"salt-event exec --tag alarm/ --parallel 4 --time-limit 30s -- sh -c 'mail -s \"$SALT_EVENT_TAG\" root'",
		},
		Flags: append(execFlags(), chooseFlags()[:6]...),
		Run:   execute,
	}
}

func execFlags() []urcli.Flag {
	const group = "Program"
	return []urcli.Flag{
		&urcli.StringFlag{Category: group, Name: "durable", Usage: "keep the place under `NAME` and go on there; one at a time"},
		&urcli.StringFlag{Category: group, Name: "name", Usage: "the `NAME` of this handler among the dead letters; without it that of --durable, or of the program"},
		&urcli.IntFlag{Category: group, Name: "parallel", Aliases: []string{"p"}, Value: runtime.NumCPU(), Usage: "run `N` programs at once, at most"},
		&urcli.DurationFlag{Category: group, Name: "time-limit", Value: time.Minute, Usage: "end a program, and all that it started, after `TIME`"},
		&urcli.IntFlag{Category: group, Name: "retries", Value: 3, Usage: "try again `N` times"},
		&urcli.DurationFlag{Category: group, Name: "backoff", Value: time.Second, Usage: "wait `TIME` before the first retry, twice as long before each further one"},
		&urcli.IntFlag{Category: group, Name: "count", Usage: "stop after `N` events"},
		&urcli.BoolFlag{Category: group, Name: "until-end", Usage: "stop behind what is stored now"},
		&urcli.StringFlag{Category: group, Name: "ready-file", Usage: "make `FILE` once the handler listens"},
	}
}

// maxBackoff is the longest pause before a retry.
const maxBackoff = time.Minute

// handler is exec at work.
type handler struct {
	name     string
	bus      string
	parallel int
	program  program
	retries  int
	backoff  time.Duration
	session  *session
	env      *cli.Env
	ledger   ledger
	confirm  *confirmer
}

func execute(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	h, q, passes, err := readHandler(env, opts)
	if err != nil {
		return err
	}
	if h.session, err = openSession(env, opts); err != nil {
		return err
	}
	defer h.session.close()
	src := &source{session: h.session, env: env, q: q, onReady: func(protocol.Ready) error { return readyFile(opts) }}
	defer src.close()
	h.confirm = newConfirmer(h.session, q.Durable)
	err = h.serve(ctx, src, passes, opts.Int("count"))
	unconfirmed := h.confirm.stop()
	if errors.Is(err, errEnough) || errors.Is(err, io.EOF) {
		return unconfirmed
	}
	return client.Error(err)
}

func readHandler(env *cli.Env, opts *urcli.Context) (*handler, protocol.Listen, filter, error) {
	words := opts.Args().Slice()
	q := protocol.Listen{
		Tags: opts.StringSlice("tag"), Match: event.MatchType(opts.String("match")), Senders: opts.StringSlice("from"),
		Durable: opts.String("durable"), UntilEnd: opts.Bool("until-end"),
	}
	if len(words) == 0 {
		return nil, q, nil, salt.WithHint(cli.Usagef("a program is needed"), "for example: salt-event exec --tag mytag -- /usr/local/bin/handler")
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		return nil, q, nil, cli.Fail(cli.Usage, err)
	}
	if opts.Int("parallel") < 1 || opts.Int("retries") < 0 || opts.Duration("time-limit") <= 0 || opts.Duration("backoff") < 0 || opts.Int("count") < 0 {
		return nil, q, nil, cli.Usagef("options --parallel and --time-limit must be above zero; --retries, --backoff and --count can not be negative")
	}
	if _, err := event.NewMatcher(q.Match, q.Tags); err != nil {
		return nil, q, nil, cli.Fail(cli.Usage, err)
	}
	passes, err := newFilter(opts.String("filter"))
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
	return &handler{
		name: name, bus: opts.String("bus"), parallel: opts.Int("parallel"), retries: opts.Int("retries"), backoff: opts.Duration("backoff"), env: env,
		program: program{args: words, limit: opts.Duration("time-limit"), env: os.Environ(), stdout: env.Stdout, stderr: env.Stderr},
	}, q, passes, nil
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// serve hands events to the program until src ends, count were handled, or ctx
// ends. It returns when no program runs any more.
func (h *handler) serve(ctx context.Context, src *source, passes filter, count int) error {
	// What cannot be kept as a dead letter must end the handler: to go on would be
	// to lose it.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	l := newLanes(h.parallel, func(ctx context.Context, slots chan struct{}, i item) {
		if err := h.handle(ctx, slots, i); err != nil {
			fail(err)
			return
		}
		h.confirm.done(h.ledger.finish(i.event.Seq))
	})
	err := h.feed(ctx, src, passes, l, count)
	l.wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errEnough) {
		return cause
	}
	return err
}

func (h *handler) feed(ctx context.Context, src *source, passes filter, l *lanes, count int) error {
	for n := 0; ; {
		got, err := src.next(ctx)
		if err != nil {
			return err
		}
		for _, line := range got.lines {
			ok, err := passes(line)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			i := item{line: line}
			if err := json.Unmarshal(line, &i.event); err != nil {
				return fmt.Errorf("unreadable event: %w", err)
			}
			h.ledger.begin(i.event.Seq)
			if !l.put(ctx, i) {
				return context.Cause(ctx)
			}
			if n++; n == count {
				return errEnough
			}
		}
		h.confirm.done(h.ledger.pass(got.passed))
	}
}

// handle brings one event to the program, with its retries. It returns an error
// only when the event is not done.
func (h *handler) handle(ctx context.Context, slots chan struct{}, i item) error {
	pause := h.backoff
	for attempt := 1; ; attempt++ {
		stderr, err := h.attempt(ctx, slots, i, attempt)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if attempt > h.retries {
			return h.bury(ctx, i, attempt, stderr, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, maxBackoff)
	}
}

func (h *handler) attempt(ctx context.Context, slots chan struct{}, i item, attempt int) (stderr string, err error) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-slots }()
	return h.program.run(ctx, append(i.event.Data[:len(i.event.Data):len(i.event.Data)], '\n'), h.vars(i, attempt))
}

// vars are the facts of an event for the program. The id is made from the event
// itself: a repetition has the same, also after the journal was restored.
func (h *handler) vars(i item, attempt int) []string {
	sum := sha256.Sum256(i.line)
	var stamp struct {
		At string `json:"_stamp"`
	}
	_ = json.Unmarshal(i.event.Data, &stamp) // data that is no object has none
	return []string{
		"SALT_EVENT_TAG=" + i.event.Tag, "SALT_EVENT_FROM=" + i.event.From, "SALT_EVENT_SEQ=" + strconv.FormatUint(i.event.Seq, 10),
		"SALT_EVENT_ID=" + hex.EncodeToString(sum[:16]), "SALT_EVENT_STAMP=" + stamp.At, "SALT_EVENT_ATTEMPT=" + strconv.Itoa(attempt),
		"SALT_EVENT_BUS=" + h.bus, "SALT_EVENT_HANDLER=" + h.name,
	}
}

// bury keeps an event as a dead letter. Then it counts as done.
func (h *handler) bury(ctx context.Context, i item, attempts int, stderr string, why error) error {
	h.env.Warn(fmt.Errorf("event %d (%s) is given up after %d attempts: %w", i.event.Seq, i.event.Tag, attempts, why))
	letter := &protocol.DeadLetter{
		Name: h.name, Seq: i.event.Seq, Tag: i.event.Tag, From: i.event.From, Event: i.line, Command: h.program.args,
		Attempts: attempts, Reason: why.Error(), Stderr: stderr,
	}
	err := h.session.ask(ctx, protocol.OpDead, protocol.Dead{Do: protocol.DeadPut, Letter: letter}, nil)
	if err != nil {
		return fmt.Errorf("keep event %d as a dead letter: %w", i.event.Seq, err)
	}
	return nil
}
