package saltevent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/eventhandler"
	"github.com/brinebus/brine/internal/salt"
)

func deadSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"list [--name NAME]", "show SEQ...", "retry SEQ... | --all [--program LINE]", "drop SEQ... | --all"},
		Summary: "Dead letters: the events that salt-event exec could not bring its program to take. " +
			"retry runs the program again, the same as then unless another is given, and forgets the event when it ends with 0.",
		Examples: []string{"salt-event dead list", "salt-event dead show 1042", "salt-event dead retry --all --name deployer", "salt-event dead drop 1042"},
		Flags: append(busFlags(),
			&urcli.StringFlag{Category: "Events", Name: "name", Usage: "only those of the handler `NAME`"},
			&urcli.BoolFlag{Category: "Events", Name: "all", Usage: "every dead letter, instead of those whose SEQ is given"},
			&urcli.StringFlag{Category: "Events", Name: "program", Usage: "retry with the shell command `LINE` instead of the program of then"},
			&urcli.StringFlag{Category: "Events", Name: "time-limit", Value: "1m", Usage: "end a program, and all that it started, after `TIME`"},
			&urcli.StringFlag{Category: "Events", Name: "format", Value: "text", Usage: "list as `FORM`: text, json"},
		),
		Run: dead,
	}
}

// deadVerbs are the subcommands, sorted.
var deadVerbs = []struct {
	name      string
	sequences bool // needs some
	run       func(*graveyard, context.Context, []brine.DeadLetter) error
}{
	{"drop", true, (*graveyard).drop},
	{"list", false, (*graveyard).list},
	{"retry", true, (*graveyard).retry},
	{"show", true, (*graveyard).show},
}

// graveyard manages the dead letters of one user.
type graveyard struct {
	conn  *brine.Conn
	env   *cli.Env
	opts  *urcli.Context
	limit time.Duration // of a program
}

func dead(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	for _, v := range deadVerbs {
		if v.name != opts.Args().First() {
			continue
		}
		sequences, err := readSequences(opts.Args().Tail(), opts.Bool("all"), v.sequences)
		if err != nil {
			return err
		}
		limit, err := cli.Duration(opts, "time-limit", time.Millisecond)
		if err != nil {
			return err
		}
		conn, err := newConnector(env, opts)(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		g := &graveyard{conn, env, opts, limit}
		letters, err := g.find(ctx, sequences)
		if err != nil {
			return err
		}
		return v.run(g, ctx, letters)
	}
	return cli.Usagef("%q is not a command for dead letters: there are list, show, retry, drop", opts.Args().First())
}

// letterID identifies a dead letter among those of a handler.
type letterID struct {
	journal string // "" is any
	seq     uint64
}

// String returns it as it is written on the command line.
func (i letterID) String() string {
	if i.journal == "" {
		return strconv.FormatUint(i.seq, 10)
	}
	return event.Position{i.journal: i.seq}.String()
}

// readSequences parses the sequences of events, in a cluster with their journals; none means all.
func readSequences(words []string, all, needed bool) ([]letterID, error) {
	var sequences []letterID
	for _, w := range words {
		journal, number, ok := strings.Cut(w, ":")
		if !ok {
			journal, number = "", w
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n == 0 || ok && journal == "" {
			return nil, cli.Usagef("%q is not the number of an event", w)
		}
		sequences = append(sequences, letterID{journal, n})
	}
	if needed && all == (len(sequences) > 0) {
		return nil, salt.WithHint(cli.Usagef("numbers of events are needed, or --all"), "'salt-event dead list' shows them")
	}
	return sequences, nil
}

// find requests the dead letters; each sequence must have one.
func (g *graveyard) find(ctx context.Context, sequences []letterID) ([]brine.DeadLetter, error) {
	letters, err := g.conn.DeadLetters(ctx, g.opts.String("name"), 0)
	if err != nil || len(sequences) == 0 {
		return letters, client.Error(err)
	}
	var found []brine.DeadLetter
	for _, id := range sequences {
		before := len(found)
		for _, l := range letters {
			if l.Seq == id.seq && (id.journal == "" || id.journal == l.Journal) {
				found = append(found, l)
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("event %s is not a dead letter", id)
		}
	}
	return found, nil
}

func (g *graveyard) list(_ context.Context, letters []brine.DeadLetter) error {
	if g.opts.String("format") == "json" {
		return g.print(letters)
	}
	w := tabwriter.NewWriter(g.env.Stdout, 0, 0, 2, ' ', 0)
	if len(letters) > 0 {
		fmt.Fprintln(w, "SEQ\tTIME\tHANDLER\tTAG\tFROM\tATTEMPTS\tREASON")
	}
	for _, l := range letters {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", letterID{l.Journal, l.Seq}, l.Time.Local().Format(time.DateTime), l.Name, l.Tag, l.From, l.Attempts, firstLine(l.Reason))
	}
	return w.Flush()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (g *graveyard) show(_ context.Context, letters []brine.DeadLetter) error {
	return g.print(letters)
}

func (g *graveyard) print(letters []brine.DeadLetter) error {
	enc := json.NewEncoder(g.env.Stdout)
	enc.SetEscapeHTML(false)
	for _, l := range letters {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

func (g *graveyard) drop(ctx context.Context, letters []brine.DeadLetter) error {
	for _, l := range letters {
		if err := g.conn.DropDeadLetter(ctx, l); err != nil {
			return client.Error(err)
		}
	}
	return nil
}

// retry runs the program for each dead letter, in order; if it fails, or somebody else retries the dead
// letter, that stays and the others continue.
func (g *graveyard) retry(ctx context.Context, letters []brine.DeadLetter) error {
	failed := 0
	for _, l := range letters {
		if err := g.retryOne(ctx, l); err != nil {
			if ctx.Err() != nil {
				return err
			}
			g.env.Warn(fmt.Errorf("event %s (%s): %w", letterID{l.Journal, l.Seq}, l.Tag, err))
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d dead letters failed again and are kept", failed, len(letters))
	}
	return nil
}

// retryOne takes a dead letter, so that nobody else runs a program for it at the same time. What is no
// longer there was handled or dropped by somebody else.
func (g *graveyard) retryOne(ctx context.Context, l brine.DeadLetter) error {
	if g.opts.String("program") == "" && eventhandler.IsRetry(l.Command) {
		return g.run(ctx, l) // which takes it, and deletes it
	}
	taken, err := g.conn.TakeDeadLetter(ctx, l)
	if errors.Is(err, brine.ErrNotFound) {
		return nil
	}
	if err != nil {
		return client.Error(err)
	}
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(taken.Context(), func() { stop(context.Cause(taken.Context())) })()
	if err := g.run(within, taken.Letter); err != nil {
		if lost := context.Cause(taken.Context()); lost != nil {
			err = fmt.Errorf("%w: %w", err, lost)
		}
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		_ = taken.Release(after) // otherwise the end of the connection releases it
		return err
	}
	return client.Error(taken.Handled(context.WithoutCancel(ctx)))
}

// releaseTime is how long the release of a dead letter is waited for.
const releaseTime = 5 * time.Second

// run runs the program of a dead letter.
func (g *graveyard) run(ctx context.Context, l brine.DeadLetter) error {
	line, err := g.event(ctx, l)
	if err != nil {
		return err
	}
	i, err := eventhandler.ReadItem(line, l.Journal)
	if err != nil {
		return err
	}
	args := l.Command
	if shell := g.opts.String("program"); shell != "" {
		args = []string{"sh", "-c", shell}
	}
	p := eventhandler.Program{Args: args, Limit: g.limit, Env: os.Environ(), Stdout: g.env.Stdout, Stderr: g.env.Stderr}
	_, err = p.Run(ctx, i.Stdin(), i.Vars(g.opts.String("bus"), l.Name, l.Attempts+1))
	return err
}

// event returns the event of a dead letter, from the journal if the dead letter could not contain
// it.
func (g *graveyard) event(ctx context.Context, l brine.DeadLetter) ([]byte, error) {
	if len(l.Event) > 0 {
		return slices.Clone(l.Event), nil
	}
	again, err := g.again(ctx, l)
	if err != nil {
		return nil, client.Error(err)
	}
	heard, err := g.conn.Listen(ctx, again)
	if err != nil {
		return nil, client.Error(err)
	}
	defer heard.Close()
	var lines [][]byte
	for len(lines) == 0 && err == nil {
		lines, err = heard.NextLines(ctx)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, client.Error(err)
	}
	if len(lines) == 0 || event.SeqOf(lines[0]) != l.Seq {
		return nil, errors.New("it was too large to be stored with the dead letter, and the journal no longer has it")
	}
	return lines[0], nil
}

// again asks for the event of a dead letter, and none of other journals.
func (g *graveyard) again(ctx context.Context, l brine.DeadLetter) (brine.ListenOptions, error) {
	if l.Journal == "" {
		return brine.ListenOptions{FromSeq: l.Seq, UntilEnd: true}, nil
	}
	_, text, err := g.conn.End(ctx)
	if err != nil {
		return brine.ListenOptions{}, err
	}
	at, err := event.ReadPositions(text) // "" if this master has no other journal
	if err != nil {
		return brine.ListenOptions{}, err
	}
	at[l.Journal] = l.Seq - 1
	return brine.ListenOptions{Members: true, At: at.String(), UntilEnd: true}, nil
}
