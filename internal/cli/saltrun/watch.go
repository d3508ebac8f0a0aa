package saltrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

// watches reports whether the runner is state.event, which prints events as they happen: this
// program listens itself, with the rules for listeners.
func watches(q request) bool {
	return q.command.Function == "state.event" && !q.async && !q.wheel
}

// watching has the arguments of state.event.
type watching struct {
	tags          string // a shell pattern
	count         int    // number of events; below 0 for no limit
	quiet, pretty bool
}

// readWatching reads the arguments of state.event, in Salt's order. The table of runners has the
// same parameters, but linking all of it for six words would slow down each start of the program.
func readWatching(c brine.Command) (watching, error) {
	names := []string{"tagmatch", "count", "quiet", "sock_dir", "pretty", "node"}
	given := map[string]any{"tagmatch": "*", "count": int64(-1), "quiet": false, "sock_dir": nil, "pretty": false, "node": "master"}
	if len(c.Args) > len(names) {
		return watching{}, fmt.Errorf("state.event takes at most %d arguments", len(names))
	}
	for i, v := range c.Args {
		given[names[i]] = v
	}
	for name, v := range c.Kwargs {
		if !slices.Contains(names, name) {
			return watching{}, fmt.Errorf("state.event has no argument %q: it takes %s", name, strings.Join(names, ", "))
		}
		given[name] = v
	}
	if given["node"] != "master" {
		return watching{}, salt.WithHint(errors.New("this is the bus of the master"), "salt-event listen --bus minion hears that of a minion")
	}
	w := watching{tags: fmt.Sprint(given["tagmatch"])}
	count, okCount := given["count"].(int64)
	quiet, okQuiet := given["quiet"].(bool)
	pretty, okPretty := given["pretty"].(bool)
	if !okCount || !okQuiet || !okPretty {
		return w, errors.New("state.event: count is a whole number, quiet and pretty are True or False")
	}
	w.count, w.quiet, w.pretty = int(count), quiet, pretty
	return w, nil
}

// watch prints events as Salt's runner does, one line each, until the requested number is reached
// or ctx ends.
func watch(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, login *client.Login, c brine.Command) error {
	w, err := readWatching(c)
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	ctx, unwatch, err := env.WhileRead(ctx)
	if err != nil {
		return err
	}
	defer unwatch()
	conn, err := client.Connect(ctx, env, opts, cfg, login)
	if err != nil {
		return err
	}
	defer conn.Close()
	q := brine.ListenOptions{Match: string(event.Fnmatch), Live: true, Members: true}
	if w.tags != "*" {
		q.Tags = []string{w.tags}
	}
	heard, err := conn.Listen(ctx, q)
	if err != nil {
		return client.Error(err)
	}
	for n := 0; w.count < 0 || n < w.count; n++ {
		e, err := heard.Next(ctx)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded):
			return nil
		case err != nil:
			return client.Error(err)
		}
		if w.quiet || opts.Bool("quiet") {
			continue
		}
		if _, err := io.WriteString(env.Stdout, watched(e, w.pretty)); err != nil {
			return err
		}
	}
	return nil
}

// watched returns the text of an event: its tag, a tab, and its data.
func watched(e brine.Event, pretty bool) string {
	data := e.Data
	if pretty {
		var b bytes.Buffer
		if json.Indent(&b, data, "", "    ") == nil {
			data = b.Bytes()
		}
	}
	return fmt.Sprintf("%s\t%s\n", e.Tag, data)
}
