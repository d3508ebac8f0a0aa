package saltevent

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

func purgeSpec() cli.Spec {
	return cli.Spec{
		Complete: complete,
		Synopsis: []string{"--before WHEN | --tag TAG | --all [-y]", "--durable NAME"},
		Summary: "Remove events from the journal, or forget the position of a durable listener. For operators. " +
			"Jobs and their returns are events too: what is removed is gone from jobs.list_jobs. " +
			"The audit log records it; --tag does not reach it.",
		Examples: []string{"salt-event purge --before 7d", "salt-event purge --tag sensors/ --before 1h -y", "salt-event purge --journal 172_16_0_12_4520 --before 1h", "salt-event purge --durable mailer"},
		Flags: append(busFlags(),
			&urcli.StringFlag{Category: "Events", Name: "before", Usage: "events older than `WHEN`: 7d, a moment, or the event with this seq"},
			&urcli.StringSliceFlag{Category: "Events", Name: "tag", Usage: "only tags that begin with `TAG`, or see --match; may be repeated"},
			&urcli.StringFlag{Category: "Events", Name: "match", Value: string(event.StartsWith), Usage: "compare tags by `HOW`: " + event.MatchTypes},
			&urcli.BoolFlag{Category: "Events", Name: "all", Usage: "every event"},
			&urcli.StringFlag{Category: "Events", Name: "journal", Usage: "from the journal `NAME` of another member of the cluster, which need not run"},
			&urcli.StringFlag{Category: "Events", Name: "durable", Usage: "forget the position `NAME`"},
			&urcli.StringFlag{Category: "Events", Name: "user", Usage: "the position is that of `USER`"},
			&urcli.BoolFlag{Category: "Events", Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
		),
		Run: purge,
	}
}

func purge(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	p, what, err := readPurge(opts)
	if err != nil {
		return err
	}
	if p.durable == "" && !opts.Bool("yes") {
		sure, err := env.Confirm(ctx, "Remove "+what+" from the journal "+cmp.Or(p.events.Journal, "of the "+opts.String("bus"))+"?", false)
		if err != nil {
			return salt.WithHint(err, "use -y to remove without a question")
		}
		if !sure {
			return nil
		}
	}
	if err := noCredentials(opts, "purge the bus"); err != nil {
		return err
	}
	conn, err := newConnector(env, opts)(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer env.Waiting(ctx, cli.Patience, func() string { return "the journal" })()
	if p.durable != "" {
		return client.Error(conn.ForgetPosition(ctx, p.durable, p.user))
	}
	count, err := conn.Purge(ctx, p.events)
	if err == nil {
		env.Note("%s removed", salt.Count(count, "event"))
	}
	return client.Error(err)
}

// purging is what is to be removed: events, or the position of a durable listener.
type purging struct {
	events        brine.PurgeOptions
	durable, user string
}

// olderThan returns a text for --before: a duration counts from now, and a number is a sequence.
func olderThan(before string, seq uint64) string {
	switch {
	case seq > 0:
		return "before the event " + before
	case strings.ContainsAny(before, "-:"):
		return "before " + before
	}
	return "older than " + before
}

// readPurge reads what is to be removed, and returns a text for it.
func readPurge(opts *urcli.Context) (p purging, what string, err error) {
	q := brine.PurgeOptions{Tags: opts.StringSlice("tag"), Match: opts.String("match"), Journal: opts.String("journal")}
	p = purging{durable: opts.String("durable"), user: opts.String("user")}
	before, all := opts.String("before"), opts.Bool("all")
	events := before != "" || all || len(q.Tags) > 0
	switch {
	case opts.Args().Len() > 0:
		return p, "", cli.Usagef("unexpected word %q", opts.Args().First())
	case events == (p.durable != ""):
		return p, "", cli.Usagef("either --before, --tag or --all, or --durable is needed")
	case all && (before != "" || len(q.Tags) > 0):
		return p, "", cli.Usagef("option --all excludes --before and --tag")
	case opts.IsSet("journal") && q.Journal == "":
		return p, "", cli.Usagef("option --journal is empty: name a journal, or leave it out")
	case q.Journal != "" && p.durable != "":
		return p, "", cli.Usagef("option --journal does not go with --durable")
	case p.user != "" && p.durable == "":
		return p, "", cli.Usagef("option --user belongs to --durable")
	}
	if _, err := event.NewMatcher(event.MatchType(q.Match), q.Tags); err != nil {
		return p, "", cli.Fail(cli.Usage, err)
	}
	words := []string{"all events"}
	if before != "" {
		moment, seq, err := readSince("--before", before, time.Now())
		if err != nil {
			return p, "", err
		}
		q.Until, q.Before = moment, seq
		words = append(words, olderThan(before, seq))
	}
	if len(q.Tags) > 0 {
		words = append(words, fmt.Sprintf("with the tags %q", q.Tags))
	}
	p.events = q
	return p, strings.Join(words, " "), nil
}
