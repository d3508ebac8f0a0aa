// Package saltcp is the program salt-cp: it copies files of this machine to minions, in
// chunks. Each chunk is a job of its own, of the function cp.recv_chunked: it is judged,
// audited and confirmed as every job is, and the next one is sent when all have it.
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

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Run is the program.
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

// request reads the command line: the job without its function, the files and where they go.
func request(opts *urcli.Context, cfg *config.Master) (q protocol.Publish, sources []string, dest string, err error) {
	kind, err := client.TargetKind(opts)
	if err != nil {
		return q, nil, "", err
	}
	words := opts.Args().Slice()
	if len(words) < 3 {
		return q, nil, "", salt.WithHint(cli.Usagef("a target, a file and a destination are needed"), "for example: salt-cp '*' /etc/hosts /etc/hosts")
	}
	q = protocol.Publish{Target: words[0], TargetType: string(kind), Delimiter: opts.String("delimiter"), Timeout: job.Seconds(cfg.Timeout.Seconds()), Lines: true}
	if kind == target.List {
		q.Target = strings.Join(argument.List(words[0]), ",")
	}
	d, err := cli.Duration(opts, "timeout", time.Millisecond)
	if err == nil && opts.IsSet("timeout") {
		q.Timeout = job.Seconds(d.Seconds())
	}
	dest = words[len(words)-1]
	if err == nil && !strings.HasPrefix(dest, "/") {
		err = cli.Usagef("the destination %q is not an absolute path", dest)
	}
	return q, words[1 : len(words)-1], dest, err
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	cfg, err := client.MasterConfig(env, opts)
	if err != nil {
		return err
	}
	q, sources, dest, err := request(opts, cfg)
	if err != nil {
		return err
	}
	items, err := list(sources, dest, opts.Bool("chunked"))
	if err != nil {
		return err
	}
	form, o := env.OutputForm(opts, cfg.Output)
	file, err := env.OpenOutput(opts)
	if err != nil {
		return err
	}
	defer file.Close()
	out, err := output.NewWriter(file, form, o)
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	login, err := client.NewLogin(env, opts, cfg)
	if err != nil {
		return err
	}
	conn, err := client.Connect(ctx, env, opts, cfg, login)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := newCopying(conn, q, !opts.Bool("no-compression"))
	defer env.Waiting(ctx, cli.Patience, c.waitingFor)()
	err = c.all(ctx, items)
	return errors.Join(c.show(out), out.Close(), err, c.verdict(err))
}

// show prints what became of each file on each minion.
func (c *copying) show(out *output.Writer) error {
	for _, id := range slices.Sorted(maps.Keys(c.results)) {
		r := c.results[id]
		var shown any = r.files
		if len(r.files) == 0 && r.lost != "" {
			shown = r.lost
		} else if r.lost != "" {
			r.files[r.at] = r.lost
		}
		if err := out.Return(output.Return{ID: string(id), Value: shown, Failed: r.failed || r.lost != ""}); err != nil {
			return err
		}
	}
	return nil
}

// verdict is the exit code of what has happened; it says nothing where err does.
func (c *copying) verdict(err error) error {
	var lost, failed []string
	for _, id := range slices.Sorted(maps.Keys(c.results)) {
		switch r := c.results[id]; {
		case r.lost != "":
			lost = append(lost, string(id))
		case r.failed:
			failed = append(failed, string(id))
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
