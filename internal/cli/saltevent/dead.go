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

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/handler"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
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
			&urcli.BoolFlag{Category: "Events", Name: "all", Usage: "every letter, instead of those whose SEQ is given"},
			&urcli.StringFlag{Category: "Events", Name: "program", Usage: "retry with the shell command `LINE` instead of the program of then"},
			&urcli.StringFlag{Category: "Events", Name: "time-limit", Value: "1m", Usage: "end a program, and all that it started, after `TIME`"},
			&urcli.StringFlag{Category: "Events", Name: "format", Value: "text", Usage: "list as `FORM`: text, json"},
		),
		Run: dead,
	}
}

// deadVerbs are what can be done, sorted.
var deadVerbs = []struct {
	name      string
	sequences bool // needs some
	run       func(*graveyard, context.Context, []protocol.DeadLetter) error
}{
	{"drop", true, (*graveyard).drop},
	{"list", false, (*graveyard).list},
	{"retry", true, (*graveyard).retry},
	{"show", true, (*graveyard).show},
}

// graveyard is where the dead letters of one user are.
type graveyard struct {
	conn  *rpc.Conn
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
	return cli.Usagef("%q is nothing to do with dead letters: there are list, show, retry, drop", opts.Args().First())
}

// readSequences reads the numbers of events; none is all of them.
func readSequences(words []string, all, needed bool) ([]uint64, error) {
	var sequences []uint64
	for _, w := range words {
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil || n == 0 {
			return nil, cli.Usagef("%q is no number of an event", w)
		}
		sequences = append(sequences, n)
	}
	if needed && all == (len(sequences) > 0) {
		return nil, salt.WithHint(cli.Usagef("numbers of events are needed, or --all"), "'salt-event dead list' shows them")
	}
	return sequences, nil
}

// find asks for the letters; each sequence must have one.
func (g *graveyard) find(ctx context.Context, sequences []uint64) ([]protocol.DeadLetter, error) {
	letters, err := g.ask(ctx, protocol.Dead{Do: protocol.DeadList, Name: g.opts.String("name")})
	if err != nil || len(sequences) == 0 {
		return letters, err
	}
	var found []protocol.DeadLetter
	for _, p := range sequences {
		before := len(found)
		for _, l := range letters {
			if l.Seq == p {
				found = append(found, l)
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("event %d is no dead letter", p)
		}
	}
	return found, nil
}

func (g *graveyard) ask(ctx context.Context, q protocol.Dead) ([]protocol.DeadLetter, error) {
	stream, err := g.conn.Call(protocol.OpDead, q)
	if err != nil {
		return nil, client.Error(err)
	}
	defer stream.Close()
	var letters []protocol.DeadLetter
	for {
		var l protocol.DeadLetter
		err := stream.Decode(ctx, &l)
		if errors.Is(err, io.EOF) {
			return letters, nil
		}
		if err != nil {
			return nil, client.Error(err)
		}
		letters = append(letters, l)
	}
}

func (g *graveyard) list(_ context.Context, letters []protocol.DeadLetter) error {
	if g.opts.String("format") == "json" {
		return g.print(letters)
	}
	w := tabwriter.NewWriter(g.env.Stdout, 0, 0, 2, ' ', 0)
	if len(letters) > 0 {
		fmt.Fprintln(w, "SEQ\tTIME\tHANDLER\tTAG\tFROM\tATTEMPTS\tREASON")
	}
	for _, l := range letters {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\n", l.Seq, l.Time.Local().Format(time.DateTime), l.Name, l.Tag, l.From, l.Attempts, firstLine(l.Reason))
	}
	return w.Flush()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (g *graveyard) show(_ context.Context, letters []protocol.DeadLetter) error {
	return g.print(letters)
}

func (g *graveyard) print(letters []protocol.DeadLetter) error {
	enc := json.NewEncoder(g.env.Stdout)
	enc.SetEscapeHTML(false)
	for _, l := range letters {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

func (g *graveyard) drop(ctx context.Context, letters []protocol.DeadLetter) error {
	for _, l := range letters {
		if _, err := g.ask(ctx, protocol.Dead{Do: protocol.DeadDrop, Name: l.Name, Seq: l.Seq}); err != nil {
			return err
		}
	}
	return nil
}

// retry runs the program for each letter, in order; a failure leaves the letter
// and does not stop the others.
func (g *graveyard) retry(ctx context.Context, letters []protocol.DeadLetter) error {
	failed := 0
	for _, l := range letters {
		if err := g.retryOne(ctx, l); err != nil {
			if ctx.Err() != nil {
				return err
			}
			g.env.Warn(fmt.Errorf("event %d (%s): %w", l.Seq, l.Tag, err))
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d dead letters failed again and are kept", failed, len(letters))
	}
	return nil
}

func (g *graveyard) retryOne(ctx context.Context, l protocol.DeadLetter) error {
	line, err := g.event(ctx, l)
	if err != nil {
		return err
	}
	i, err := handler.ReadItem(line)
	if err != nil {
		return err
	}
	args := l.Command
	if shell := g.opts.String("program"); shell != "" {
		args = []string{"sh", "-c", shell}
	}
	p := handler.Program{Args: args, Limit: g.limit, Env: os.Environ(), Stdout: g.env.Stdout, Stderr: g.env.Stderr}
	if _, err := p.Run(ctx, i.Stdin(), i.Vars(g.opts.String("bus"), l.Name, l.Attempts+1)); err != nil {
		return err
	}
	return g.drop(ctx, []protocol.DeadLetter{l})
}

// event is the event of a letter, from the journal where the letter could not
// hold it.
func (g *graveyard) event(ctx context.Context, l protocol.DeadLetter) ([]byte, error) {
	if len(l.Event) > 0 {
		return slices.Clone(l.Event), nil
	}
	stream, err := g.conn.Call(protocol.OpListen, protocol.Listen{FromSeq: l.Seq, UntilEnd: true})
	if err != nil {
		return nil, client.Error(err)
	}
	defer stream.Close()
	var ready protocol.Ready
	if err := stream.Decode(ctx, &ready); err != nil {
		return nil, client.Error(err)
	}
	line, err := stream.Next(ctx)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, client.Error(err)
	}
	if event.SeqOf(line) != l.Seq {
		return nil, errors.New("it was too large to be kept with the letter, and the journal has it no more")
	}
	return line, nil
}
