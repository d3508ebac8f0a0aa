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

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// watches says whether a runner is state.event, which prints what happens while
// it happens: this program listens itself, by the rules for listeners.
func watches(q protocol.Run) bool {
	return q.Command.Function == "state.event" && !q.Async && !q.Wheel
}

// watching is what state.event is asked to print.
type watching struct {
	tags          string // a shell pattern
	count         int    // of events; below 0 without end
	quiet, pretty bool
}

// readWatching reads the arguments of state.event, in the order in which Salt
// has them. The table of runners has the same; to link all of it for six words
// would cost each start of the program more than this.
func readWatching(c job.Command) (watching, error) {
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

// watch prints events as Salt's runner does, a line each, until there were enough
// of them or ctx ends.
func watch(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, login *client.Login, c job.Command) error {
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
	q := protocol.Listen{Match: event.Fnmatch, Live: true}
	if w.tags != "*" {
		q.Tags = []string{w.tags}
	}
	stream, err := conn.Call(protocol.OpListen, q)
	if err != nil {
		return client.Error(err)
	}
	var ready protocol.Ready
	if err := stream.Decode(ctx, &ready); err != nil {
		return client.Error(err)
	}
	for n := 0; w.count < 0 || n < w.count; n++ {
		var e event.Event
		switch err := stream.Decode(ctx, &e); {
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

// watched is what is printed of an event: its tag, a tab, and its data.
func watched(e event.Event, pretty bool) string {
	data := e.Data
	if pretty {
		var b bytes.Buffer
		if json.Indent(&b, data, "", "    ") == nil {
			data = b.Bytes()
		}
	}
	return fmt.Sprintf("%s\t%s\n", e.Tag, data)
}
