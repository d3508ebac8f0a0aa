package saltevent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	urcli "github.com/urfave/cli/v2"

	"brine/internal/cli"
	"brine/internal/cli/client"
	"brine/internal/event"
	"brine/internal/protocol"
)

func listenSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options]"},
		Summary:  "Print events as they come, one JSON document a line, until Ctrl-C, --count or --timeout.",
		Examples: []string{"salt-event listen --tag mytag", "salt-event listen --tag salt/job --count 1 --timeout 30s", "salt-event listen --since 1h"},
		Flags: []urcli.Flag{
			busFlag(),
			&urcli.StringSliceFlag{Category: "Events", Name: "tag", Usage: "only tags that begin with `TAG`; may be repeated"},
			&urcli.IntFlag{Category: "Events", Name: "count", Usage: "stop after `N` events"},
			&urcli.DurationFlag{Category: "Events", Name: "timeout", Aliases: []string{"t"}, Usage: "stop after `TIME`, as in 30s; with --count the exit code is 3 then"},
			&urcli.DurationFlag{Category: "Events", Name: "since", Usage: "begin with the stored events of the last `TIME`, as in 1h"},
			&urcli.StringFlag{Category: "Events", Name: "ready-file", Usage: "make `FILE` once the listener stands: what is fired from then on is heard"},
		},
		Run: listen,
	}
}

var errEnough = errors.New("as many events as asked for")

func listen(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	if opts.Args().Len() > 0 {
		return cli.Usagef("unexpected word %q; a tag is given with --tag", opts.Args().First())
	}
	if opts.Int("count") < 0 || opts.Duration("timeout") < 0 || opts.Duration("since") < 0 {
		return cli.Usagef("options --count, --timeout and --since can not be negative")
	}
	conn, err := dial(env, opts)
	if err != nil {
		return err
	}
	defer conn.Close()
	q := protocol.Listen{Tags: opts.StringSlice("tag")}
	if since := opts.Duration("since"); since > 0 {
		q.Since = time.Now().Add(-since)
	}
	stream, err := conn.Call(protocol.OpListen, q)
	if err != nil {
		return client.Error(err)
	}
	stop := env.Waiting(ctx, cli.Patience, func() string { return "the daemon to begin" })
	var ready protocol.Ready
	err = stream.Decode(ctx, &ready)
	stop()
	if err != nil {
		return client.Error(err)
	}
	if path := opts.String("ready-file"); path != "" {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return err
		}
	}
	if limit := opts.Duration("timeout"); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err = printEvents(env.Stdout, opts.Int("count"), func() (e event.Event, err error) {
		err = stream.Decode(ctx, &e)
		return e, err
	})
	return ended(err, opts)
}

// printEvents writes events until next fails or count of them, if it is above zero,
// were written. Each line is one write, so that a reader sees it at once.
func printEvents(w io.Writer, count int, next func() (event.Event, error)) error {
	for n := 0; count == 0 || n < count; n++ {
		e, err := next()
		if err != nil {
			return err
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return errEnough
}

func ended(err error, opts *urcli.Context) error {
	switch {
	case errors.Is(err, errEnough):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		if n := opts.Int("count"); n > 0 {
			return cli.Fail(cli.NoReturn, fmt.Errorf("fewer than %d events came within %s", n, opts.Duration("timeout")))
		}
		return nil
	}
	return client.Error(err)
}
