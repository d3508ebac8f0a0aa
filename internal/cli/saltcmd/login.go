package saltcmd

import (
	"context"
	"slices"
	"strings"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/salt"
)

// command is a word that salt accepts instead of a target.
type command struct {
	name string
	spec func() cli.Spec
}

var subcommands = []command{{"login", loginSpec}, {"logout", logoutSpec}}

// subcommand removes the command from args. A minion may have the same name: it is a target if a
// function follows; a login is followed by a URL with its scheme.
func subcommand(args []string) (c command, rest []string, ok bool) {
	if len(args) == 0 {
		return c, nil, false
	}
	i := slices.IndexFunc(subcommands, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return c, nil, false
	}
	url := func(word string) bool { return strings.HasPrefix(word, "tls://") }
	option := func(word string) bool { return strings.HasPrefix(word, "-") }
	if len(args) > 1 && !option(args[1]) && (args[0] != "login" || !slices.ContainsFunc(args[1:], url)) {
		return c, nil, false
	}
	return subcommands[i], args[1:], true
}

// described returns the commands with their summaries.
func described() []cli.Command {
	var list []cli.Command
	for _, c := range subcommands {
		list = append(list, cli.Command{Name: c.name, Summary: c.spec().Summary})
	}
	return list
}

func loginSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options] URL"},
		Summary:  "Log in to the master at URL, tls://HOST:PORT, as a user of external_auth, and keep a token in ~/.config/salt/cli: salt, salt-run, salt-event and salt-key are that user's from then on.",
		Examples: []string{"salt login -a pam tls://salt.example.com", "salt '*' test.ping", "salt logout"},
		Flags:    append([]urcli.Flag{client.FingerprintFlag()}, keptLoginFlags()...),
		Run: func(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
			if opts.Args().Len() != 1 {
				return salt.WithHint(cli.Usagef("the address of one master is needed"), "for example: salt login -a pam tls://salt.example.com")
			}
			cfg, err := client.MasterConfig(env, opts)
			if err != nil {
				return err
			}
			return client.KeepLogin(ctx, env, opts, cfg, opts.Args().First())
		},
	}
}

// keptLoginFlags are those of a login without the option for a token: 'salt login' always makes
// one.
func keptLoginFlags() []urcli.Flag {
	return slices.DeleteFunc(client.LoginFlags("a"), func(f urcli.Flag) bool { return slices.Contains(f.Names(), "make-token") })
}

func logoutSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options]"},
		Summary:  "Have the token of 'salt login' revoked, and forget it.",
		Examples: []string{"salt logout"},
		Run: func(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
			if opts.Args().Len() > 0 {
				return cli.Usagef("unexpected argument %q", opts.Args().First())
			}
			return client.EndLogin(ctx, env)
		},
	}
}
