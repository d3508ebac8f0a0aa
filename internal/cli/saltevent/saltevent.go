// Package saltevent is the command salt-event: the event bus for shell scripts.
// Each sub-command is a file.
package saltevent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/salt"
)

// command is one sub-command.
type command struct {
	name string
	spec func() cli.Spec
}

// commands are all subcommands, sorted.
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
		name = "" // it is being completed
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

// subcommand removes the first word that is not an option, or the value of one, from args.
func subcommand(args []string) (name string, rest []string) {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--":
			return "", args
		case takesWord(a):
			i++
		case !strings.HasPrefix(a, "-"):
			return a, slices.Concat(args[:i], args[i+1:])
		}
	}
	return "", args
}

// takesWord reports whether the next word is the value of an option that any command may have.
func takesWord(option string) bool {
	name := strings.TrimLeft(option, "-")
	if name == option || strings.Contains(name, "=") {
		return false
	}
	if slices.Contains([]string{"c", "l", "config-dir", "log-level", "log-file", "log-file-level"}, name) {
		return true
	}
	return slices.ContainsFunc(busFlags(), func(f urcli.Flag) bool {
		_, takes := f.(*urcli.StringFlag)
		return takes && slices.Contains(f.Names(), name)
	})
}

// busFlags select the bus, its machine, and the login. Every command has them except creds,
// which works on the master's files.
func busFlags() []urcli.Flag {
	bus := &urcli.StringFlag{Category: "Events", Name: "bus", Value: "master", Usage: "the `BUS` to use: master or minion, each on its own machine"}
	return slices.Concat([]urcli.Flag{bus}, client.MasterFlags(), client.LoginFlags("a"))
}

// connector connects to the daemon whose bus was chosen, as often as needed.
type connector func(context.Context) (*brine.Conn, error)

// newConnector reads the configuration, and a password, at the first use only: a long-running
// command reconnects by itself.
func newConnector(env *cli.Env, opts *urcli.Context) connector {
	switch name := opts.String("bus"); name {
	case "master":
		return toMaster(env, opts)
	case "minion":
		return toMinion(env, opts)
	default:
		return func(context.Context) (*brine.Conn, error) {
			return nil, cli.Usagef("option --bus: %q is not a bus: it is master or minion", name)
		}
	}
}

func toMaster(env *cli.Env, opts *urcli.Context) connector {
	connect := sync.OnceValues(func() (connector, error) {
		cfg, err := client.MasterConfig(env, opts)
		if err != nil {
			return nil, err
		}
		login, err := client.NewLogin(env, opts, cfg)
		if err != nil {
			return nil, err
		}
		return client.Connector(env, opts, cfg, login), nil
	})
	return func(ctx context.Context) (*brine.Conn, error) {
		dial, err := connect()
		if err != nil {
			return nil, err
		}
		return dial(ctx)
	}
}

func toMinion(env *cli.Env, opts *urcli.Context) connector {
	return func(ctx context.Context) (*brine.Conn, error) {
		for _, name := range []string{"master", "fingerprint", "auth", "username", "make-token"} {
			if opts.IsSet(name) {
				return nil, cli.Usagef("option --%s is about the bus of a master, and --bus names that of a minion", name)
			}
		}
		cfg, err := client.MinionConfig(env, opts, nil)
		if err != nil {
			return nil, err
		}
		return client.Local(ctx, env, cfg.SockDir, client.MinionSocket)
	}
}

// noCredentials refuses requests for operators: over a connection with credentials they do not
// exist, whatever the login.
func noCredentials(opts *urcli.Context, what string) error {
	if opts.String("creds") == "" || opts.String("bus") == "minion" {
		return nil
	}
	return cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("with credentials nobody may %s: that is for operators", what), "root may do this on the master's machine"))
}

// withoutInput is env for a login when standard input has something other than a password.
func withoutInput(env *cli.Env) *cli.Env {
	if env.StdinTTY {
		return env
	}
	other := *env
	other.Stdin = occupied{}
	return &other
}

type occupied struct{}

// Read implements io.Reader.
func (occupied) Read([]byte) (int, error) {
	return 0, salt.WithHint(cli.Usagef("standard input has the events"), "name a file with the password by --password-file, or keep a token: -T once, or 'salt login'")
}
