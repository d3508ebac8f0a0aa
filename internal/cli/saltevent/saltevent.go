// Package saltevent is the command salt-event: the event bus for shell scripts.
// Each sub-command is a file.
package saltevent

import (
	"context"
	"slices"
	"strings"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// command is one sub-command.
type command struct {
	name string
	spec func() cli.Spec
}

// commands are all of them, sorted.
var commands = []command{
	{"creds", credsSpec},
	{"dead", deadSpec},
	{"exec", execSpec},
	{"fire", fireSpec},
	{"listen", listenSpec},
	{"purge", purgeSpec},
	{"sink", sinkSpec},
	{"stat", statSpec},
	{"token", tokenSpec},
	{"top", topSpec},
	{"wait", waitSpec},
}

// Run runs salt-event.
func Run(ctx context.Context, env *cli.Env) int {
	name, rest := subcommand(env.Args)
	if n := len(env.Args); n > 0 && env.Args[0] == cli.CompleteFlag && env.Args[n-1] == name {
		name = "" // it is still being typed
	}
	for _, c := range commands {
		if c.name == name {
			env.Args = rest
			env.Name = "salt-event " + name
			return env.Run(ctx, c.spec())
		}
	}
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{
			"listen [options]", "wait --since-now TOKEN [options]", "token", "fire [options] TAG [DATA]", "exec [options] -- PROGRAM",
			"dead list|show|retry|drop", "sink --config FILE", "creds NAME", "stat", "top", "purge",
		},
		Summary:  "The event bus for shell scripts. 'salt-event COMMAND -h' shows the options of a command.",
		Commands: described(),
		Examples: []string{"salt-event listen --tag mytag", `salt-event fire mytag '{"message": "hello"}'`},
		Run: func(_ context.Context, _ *cli.Env, opts *urcli.Context) error {
			if name == "" {
				return salt.WithHint(cli.Usagef("a command is needed: %s", names()), "for example: salt-event listen --tag mytag")
			}
			return cli.Usagef("there is no command %q; there are: %s", name, names())
		},
	})
}

// described are the commands with their summaries.
func described() []cli.Command {
	var list []cli.Command
	for _, c := range commands {
		list = append(list, cli.Command{Name: c.name, Summary: c.spec().Summary})
	}
	return list
}

func names() string {
	var list []string
	for _, c := range commands {
		list = append(list, c.name)
	}
	return strings.Join(list, ", ")
}

// subcommand takes the first word that is no option, or the value of one, out of
// args.
func subcommand(args []string) (name string, rest []string) {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--":
			return "", args
		case a == "-c" || a == "-l" || a == "--config-dir" || a == "--log-level" || a == "--log-file" || a == "--log-file-level" || a == "--bus" || a == "--creds" || a == "--master" || a == "--fingerprint":
			i++
		case !strings.HasPrefix(a, "-"):
			return a, slices.Concat(args[:i], args[i+1:])
		}
	}
	return "", args
}

// busFlag chooses the bus.
func busFlag() urcli.Flag {
	return &urcli.StringFlag{Category: "Events", Name: "bus", Value: "master", Usage: "the `BUS` to use: master or minion, each on its own machine"}
}

// dial connects to the daemon whose bus was chosen.
func dial(ctx context.Context, env *cli.Env, opts *urcli.Context) (*rpc.Conn, error) {
	switch name := opts.String("bus"); name {
	case "master":
		cfg, err := client.MasterConfig(env, opts)
		if err != nil {
			return nil, err
		}
		return client.Connect(ctx, env, opts, cfg, nil)
	case "minion":
		cfg, err := client.MinionConfig(env, opts, nil)
		if err != nil {
			return nil, err
		}
		return client.Dial(env, cfg.SockDir, client.MinionSocket)
	default:
		return nil, cli.Usagef("option --bus: %q is no bus: it is master or minion", name)
	}
}
