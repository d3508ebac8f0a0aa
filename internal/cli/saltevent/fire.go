package saltevent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

func fireSpec() cli.Spec {
	return cli.Spec{
		Complete: complete,
		Synopsis: []string{"[options] TAG [DATA]", "[options] TAG -          (DATA from standard input)", "[options] [TAG] --stdin  (many events, one a line)"},
		Summary: "Fire events. DATA is JSON; without it the event has none. Exit code 0 means that everything is stored. " +
			"When the daemon goes away in the middle, it is tried again; nothing is stored twice by that. " +
			"With --no-store nothing is stored: exit code 0 means that the daemon has handed it to those who listened at that moment, " +
			"were they none, and what failed is not tried again.",
		Examples: []string{
			`salt-event fire mytag '{"sample-msg": "this is a test"}'`,
			`salt-event fire --bus minion mytag '{"message": "a drop in the bucket"}'`, "vmstat -n 1 | salt-event fire --text --stdin --no-store load/web1", "df -h | salt-event fire --text disk/report -",
			"jq -c '.[]' readings.json | salt-event fire sensors --stdin", "salt-event listen --until-end --bus minion | salt-event fire --stdin",
		},
		Flags: append(busFlags(),
			&urcli.BoolFlag{Category: "Events", Name: "stdin", Usage: "read one JSON document a line: the data of an event with TAG each, or without TAG objects with tag and data, as listen prints them"},
			&urcli.BoolFlag{Category: "Events", Name: "skip-bad", Usage: "with --stdin: pass over a line that cannot be fired, tell which, and end with code 1; without it such a line ends the reading"},
			&urcli.BoolFlag{Category: "Events", Name: "text", Usage: `DATA, or each line, is plain text; the event gets {"message": DATA}`},
			&urcli.StringFlag{Category: "Events", Name: "id", Usage: "names what is fired: of the same input, fired again within ten minutes by the same user with the same `NAME`, only that is stored which the journal lacks. Who does not give one gets one, which an error tells where it is of use"},
			&urcli.StringFlag{Category: "Events", Name: "file", Usage: "read DATA from `FILE`"},
			&urcli.BoolFlag{Category: "Events", Name: "no-store", Usage: "hand the events to those who listen now, and store them nowhere: no --durable listener, handler or sink gets them, and none can be read later"},
			&urcli.StringFlag{Category: "Events", Name: "timeout", Aliases: []string{"t"}, Value: "15s", Usage: "give up when nothing is confirmed for `TIME`, as in 10s; the members of a cluster may need 11 seconds to elect a leader"},
		),
		Run: fire,
	}
}

func fire(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	words := opts.Args().Slice()
	if opts.Bool("stdin") {
		return fireLines(ctx, env, opts, words)
	}
	if len(words) == 0 || len(words) > 2 || len(words) == 2 && opts.IsSet("file") {
		return salt.WithHint(cli.Usagef("a tag, and at most one DATA, are needed; there are %d words", len(words)),
			`put DATA in quotes, for example: salt-event fire mytag '{"message": "hello"}'`)
	}
	if err := event.CheckTag(words[0]); err != nil {
		return cli.Fail(cli.Usage, err)
	}
	raw, err := data(env, opts, words[1:])
	if err != nil {
		return err
	}
	limit, err := patienceOf(opts)
	if err != nil {
		return err
	}
	who := env
	if len(words) == 2 && words[1] == "-" {
		who = withoutInput(env)
	}
	s, err := awaitSession(ctx, env, opts, newConnector(who, opts), limit)
	if err != nil {
		return err
	}
	defer s.close()
	d := newDelivery(s, opts, limit)
	d.reason = new(atomic.Pointer[string])
	defer env.Waiting(ctx, cli.Patience, func() string { return cmp.Or(d.waitsFor(), "the event to be "+d.done) })()
	return d.deliver(ctx, []brine.Event{{Tag: words[0], Data: raw}}, 0)
}

// delivery sends events to the daemon.
type delivery struct {
	session *session
	limit   time.Duration // without an answer of the daemon
	series  string        // their id
	live    bool          // they are not stored
	done    string        // what happens to them, for people
	lines   bool          // they are lines for a minion's bus, which passes on what has the tag fire_master
	passed  bool          // there was such a line
	skip    bool          // go on after a line that cannot be fired
	skipped int           // such lines so far

	reason *atomic.Pointer[string] // what the daemon says that it waits for; nil if it is not asked for that
	tell   func(what string)       // shows it, if not nil
}

// waitsFor is what the events wait for as far as the daemon has told that, "" otherwise.
func (d *delivery) waitsFor() string {
	if d.reason == nil || d.reason.Load() == nil {
		return ""
	}
	return *d.reason.Load()
}

// patienceOf is how long to wait for an answer of the daemon.
func patienceOf(opts *urcli.Context) (time.Duration, error) {
	return cli.Duration(opts, "timeout", time.Millisecond)
}

func newDelivery(s *session, opts *urcli.Context, limit time.Duration) *delivery {
	d := &delivery{session: s, limit: limit, series: cmp.Or(opts.String("id"), bus.NewNonce()), live: opts.Bool("no-store"), done: "stored", lines: opts.Bool("stdin") && opts.String("bus") == "minion", skip: opts.Bool("skip-bad")}
	if d.live {
		d.done = "handed out"
		s.stay = true // events that are not stored have no id for recognising duplicates
	}
	return d
}

// deliver fires events in one request and returns when they are stored, or sent to listeners if
// they are not to be stored; first is the number of the first one in the input, from 0. Events to
// be stored are retried if needed: they have an id by which the journal recognises duplicates.
func (d *delivery) deliver(ctx context.Context, events []brine.Event, first int) error {
	limited, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	d.passed = d.passed || d.lines && slices.ContainsFunc(events, func(e brine.Event) bool { return event.Forwarded(e.Tag) })
	o := d.options(first)
	err := d.session.ask(limited, func(c *brine.Conn) error { _, err := c.FireWith(limited, o, events...); return err })
	if d.live && errors.Is(err, brine.ErrLost) {
		return cli.Fail(cli.Unavailable, fmt.Errorf("handed out or not: %w", err))
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return cli.Fail(cli.Unavailable, d.unconfirmed(err))
	}
	return err
}

// options are those of one request, with which what it waits for is shown once.
func (d *delivery) options(first int) brine.FireOptions {
	o := brine.FireOptions{ID: d.series, First: first, Live: d.live}
	if d.reason == nil {
		return o
	}
	d.reason.Store(nil)
	o.Waiting = func(what string) {
		if d.reason.Swap(&what) == nil && d.tell != nil {
			d.tell(what)
		}
	}
	return o
}

// unconfirmed returns the error, with what is known about the events, after the timeout.
func (d *delivery) unconfirmed(err error) error {
	var u *unansweredError
	switch {
	case !errors.As(err, &u), errors.Is(u.said, brine.ErrLost):
		waited := ""
		if what := d.waitsFor(); what != "" {
			waited = "; the daemon waited for " + what
		}
		return salt.WithHint(fmt.Errorf("not confirmed within %s: %s or not%s", d.limit, d.done, waited), d.again())
	case u.unsure:
		hint := d.again()
		if why := brine.Hint(u.said); why != "" {
			hint = why + "; " + hint
		}
		return salt.WithHint(fmt.Errorf("not confirmed within %s, %s or not; before: %w", d.limit, d.done, u.said), hint)
	}
	return salt.WithHint(fmt.Errorf("not %s within %s: %w", d.done, d.limit, u.said), brine.Hint(u.said)) // it was refused each time
}

// again returns how to repeat the command if it is not known whether all is stored. A minion recognises what it
// has passed on only by the whole request, and lines that are fired again come in other requests.
func (d *delivery) again() string {
	if d.passed {
		return "look at the master which of these lines are there, and fire only the others: lines that are passed on by " + event.ForwardPrefix + " would be stored twice, also with --id"
	}
	return fmt.Sprintf("fire the same again within ten minutes with --id %s: of what is stored already nothing is stored twice", d.series)
}

// maxData limits what is read for one event. It is well above the limit of a bus, so that the
// daemon's error, which names its limit, comes first.
const maxData = 64 << 20

// data reads the event's data from the argument, a file or standard input.
func data(env *cli.Env, opts *urcli.Context, words []string) (json.RawMessage, error) {
	var text []byte
	var err error
	switch {
	case opts.IsSet("file"):
		text, err = readFile(opts.String("file"))
	case len(words) == 0:
		return nil, nil
	case words[0] == "-":
		text, err = io.ReadAll(io.LimitReader(env.Stdin, maxData))
	default:
		text = []byte(words[0])
	}
	if err != nil {
		return nil, fmt.Errorf("read the data: %w", err)
	}
	if err := salt.CheckUTF8(text); err != nil {
		return nil, cli.Fail(cli.Usage, salt.WithHint(fmt.Errorf("the data: %w", err), salt.Hint(err)))
	}
	if opts.Bool("text") {
		return json.Marshal(map[string]string{"message": string(text)})
	}
	if !json.Valid(text) {
		return nil, salt.WithHint(cli.Usagef("the data is not JSON: %s", jsonMistake(text)), "put it in single quotes, or use --text for plain text")
	}
	return text, nil
}

func jsonMistake(text []byte) string {
	var v any
	err := json.Unmarshal(text, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("%s at character %d", syntax, syntax.Offset)
	}
	return fmt.Sprint(err)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxData))
}
