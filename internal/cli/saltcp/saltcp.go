// Package saltcp is the program salt-cp: it copies files of this machine to minions in chunks. Each
// chunk is a separate job of the function cp.recv_chunked: it is authorised, audited and confirmed
// like any other job, and the next one is sent when all minions have it.
package saltcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Run runs salt-cp.
func Run(ctx context.Context, env *cli.Env) int { return env.Run(ctx, spec()) }

func spec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options] TARGET SOURCE... DEST"},
		Summary: "Copy files of this machine to DEST, an absolute path, on the minions that TARGET means. Several files, and those whose DEST ends with a slash, go into the directory DEST. " +
			"A file takes its place when all of it has arrived, and not before. " +
			"Whoever may run cp.recv_chunked may do it. What many minions need again and again is better served: see file_roots and cp.get_file.",
		Examples: []string{"salt-cp '*' /etc/hosts /etc/hosts", "salt-cp -L web1,web2 site.conf mime.types /etc/nginx/", "salt-cp -C 'web*' ./htdocs /var/www"},
		Flags:    flags(),
		Refused: []cli.Refusal{
			cli.RefuseUser(),
			{Option: "range,R=", Reason: "there are no range servers", Hint: "-L a,b names minions, -N a nodegroup of the master, -E is a regular expression"},
		},
		Output:   true,
		Complete: complete,
		Run:      run,
	}
}

func flags() []urcli.Flag {
	const copying = "Copying"
	return slices.Concat([]urcli.Flag{
		&urcli.BoolFlag{Category: copying, Name: "chunked", Aliases: []string{"C"}, Usage: "copy directories too, with all that is below them, and the modes of files; make directories that are missing"},
		&urcli.BoolFlag{Category: copying, Name: "no-compression", Aliases: []string{"n"}, Usage: "do not compress what is sent"},
		&urcli.StringFlag{Category: copying, Name: "timeout", Aliases: []string{"t"}, Usage: "give up minions that say nothing for `TIME`, as in 10, 0.5 or 1m (default: timeout of the configuration, 5)"},
		&urcli.BoolFlag{Category: copying, Name: "static", Aliases: []string{"s"}, Usage: "accepted as in salt: everything is shown at the end", Hidden: true},
	}, client.TargetFlags("C"), client.MasterFlags(), client.LoginFlags("a"))
}

func complete(ctx context.Context, env *cli.Env, c cli.Completion) []string {
	if c.Flag != "" || len(c.Words) > 0 {
		return nil
	}
	return client.TargetWords(ctx, env, c)
}

// request reads the command line: the job without its function, the files and the destination.
func request(opts *urcli.Context, cfg *config.Master) (t brine.Target, o brine.RunOptions, sources []string, dest string, err error) {
	kind, err := client.TargetKind(opts)
	if err != nil {
		return t, o, nil, "", err
	}
	words := opts.Args().Slice()
	if len(words) < 3 {
		return t, o, nil, "", salt.WithHint(cli.Usagef("a target, a file and a destination are needed"), "for example: salt-cp '*' /etc/hosts /etc/hosts")
	}
	t = brine.Target{Expr: words[0], Type: string(kind), Delimiter: opts.String("delimiter")}
	if kind == target.List {
		t.Expr = strings.Join(argument.List(words[0]), ",")
	}
	o.Timeout = cfg.Timeout
	d, err := cli.Duration(opts, "timeout", time.Millisecond)
	if err == nil && opts.IsSet("timeout") {
		o.Timeout = d
	}
	dest = words[len(words)-1]
	if err == nil && !strings.HasPrefix(dest, "/") {
		err = cli.Usagef("the destination %q is not an absolute path", dest)
	}
	return t, o, words[1 : len(words)-1], dest, err
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	cfg, err := client.MasterConfig(env, opts)
	if err != nil {
		return err
	}
	t, o, sources, dest, err := request(opts, cfg)
	if err != nil {
		return err
	}
	items, err := list(sources, dest, opts.Bool("chunked"))
	if err != nil {
		return err
	}
	out, err := env.OpenResults(opts, cfg.Output, cfg.OutputIndent)
	if err != nil {
		return err
	}
	defer out.File.Close()
	login, err := client.NewLogin(env, opts, cfg)
	if err != nil {
		return err
	}
	conn, err := client.Connect(ctx, env, opts, cfg, login)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := newCopying(conn, t, o, !opts.Bool("no-compression"))
	defer env.Waiting(ctx, cli.Patience, c.waitingFor)()
	err = c.all(ctx, items)
	return errors.Join(c.show(out.Writer), out.Close(), err, c.verdict(err))
}

// show prints the result for each file on each minion.
func (c *copying) show(out *output.Writer) error {
	for _, id := range slices.Sorted(maps.Keys(c.results)) {
		r := c.results[id]
		var shown any = r.files
		if len(r.files) == 0 && r.lost != "" {
			shown = r.lost
		} else if r.lost != "" {
			r.files[r.at] = r.lost
		}
		if err := out.Return(output.Return{ID: id, Value: shown, Failed: r.failed || r.lost != ""}); err != nil {
			return err
		}
	}
	return nil
}

// verdict returns the exit code for the results, or err.
func (c *copying) verdict(err error) error {
	var lost, failed []string
	for _, id := range slices.Sorted(maps.Keys(c.results)) {
		switch r := c.results[id]; {
		case r.lost != "":
			lost = append(lost, id)
		case r.failed:
			failed = append(failed, id)
		}
	}
	switch {
	case err != nil:
		return nil
	case len(lost) > 0:
		return cli.Fail(cli.NoReturn, fmt.Errorf("%d of %s did not return: %s", len(lost), salt.Count(len(c.results), "minion"), strings.Join(lost, ", ")))
	case len(failed) > 0:
		return cli.Fail(cli.Failed, fmt.Errorf("%d of %s could not take all files: %s", len(failed), salt.Count(len(c.results), "minion"), strings.Join(failed, ", ")))
	}
	return nil
}
