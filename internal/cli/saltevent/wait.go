package saltevent

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

func tokenSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options]"},
		Summary:  "Print a token for the present end of the journal: 'salt-event wait --since-now TOKEN' sees everything that is fired from here on.",
		Examples: waitExamples,
		Flags:    busFlags(),
		Run:      printToken,
	}
}

var waitExamples = []string{
	"token=$(salt-event token)          # first remember where the journal ends,",
	"  start-the-backup &               # then do what will fire the event,",
	`  salt-event wait --since-now "$token" --tag backup/done --timeout 10m`,
}

func printToken(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	if opts.Args().Len() > 0 {
		return cli.Usagef("unexpected word %q", opts.Args().First())
	}
	conn, err := newConnector(env, opts)(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer env.Waiting(ctx, cli.Patience, func() string { return "the daemon" })()
	seq, at, err := conn.End(ctx)
	if err != nil {
		return client.Error(err)
	}
	if at != "" { // other journals are mirrored there
		_, err = fmt.Fprintln(env.Stdout, at)
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, seq)
	return err
}

func waitSpec() cli.Spec {
	return cli.Spec{
		Complete: complete,
		Synopsis: []string{"--since-now TOKEN [options]", "--since WHEN [options]"},
		Summary: "Print the first event that matches and end, also if it was fired before this command began: " +
			"from the sequence of the token on nothing is missed.",
		Examples: waitExamples,
		Flags: append(slices.Concat(busFlags(), chooseFlags()),
			&urcli.StringFlag{Category: "Events", Name: "since-now", Usage: "begin behind the sequence of the `TOKEN` that salt-event token has printed"}),
		Run: wait,
	}
}

func wait(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	c, err := readChoice(env, opts)
	if err != nil {
		return err
	}
	token := opts.String("since-now")
	switch {
	case token == "" && opts.String("since") == "":
		return salt.WithHint(cli.Usagef("option --since-now or --since is needed: without a sequence to begin at, an event that is already there would be missed"),
			`token=$(salt-event token) before what fires the event, then salt-event wait --since-now "$token"`)
	case token != "" && opts.String("since") != "":
		return cli.Usagef("options --since-now and --since exclude each other")
	case token != "":
		seq, err := strconv.ParseUint(token, 10, 64)
		_, notAt := event.ReadPosition(token)
		if err != nil && notAt != nil {
			return cli.Usagef("option --since-now: %q is not a token of salt-event token", token)
		}
		c.q.Since = time.Time{}
		if err == nil {
			c.q.FromSeq = seq + 1
		} else {
			c.q.At = token
		}
	}
	return c.print(ctx, env, opts, 1)
}
