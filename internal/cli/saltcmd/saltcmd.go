// Package saltcmd is the command salt: it asks the master to run functions on
// minions and shows their returns as they arrive.
package saltcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/cli/jobview"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// Run runs salt.
func Run(ctx context.Context, env *cli.Env) int {
	if c, rest, ok := subcommand(env.Args); ok {
		env.Name, env.Args = "salt "+c.name, rest
		return env.Run(ctx, c.spec())
	}
	return env.Run(ctx, spec(run))
}

// spec is the command line, and what is done with it.
func spec(run func(context.Context, *cli.Env, *urcli.Context) error) cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options] TARGET FUNCTION [ARGUMENT...] [NAME=VALUE...]", "[options] -d [FUNCTION]", "login [options] URL", "logout [options]"},
		Summary:  "Run a function on the minions that TARGET means, and show what each returns.",
		Examples: []string{
			"salt '*' test.ping", "salt web1 cmd.run 'uname -sr'", "salt -L web1,web2 grains.get os --out json",
			"salt -C 'G@os:Debian and web*' test.version,test.ping , -t 10", "salt -d test.ping",
			"salt '*' -b 10% --max-fail 3 cmd.run 'apt-get -y upgrade'", "salt '*' --queue 2h service.restart nginx", "salt web1 --follow cmd.run 'make world'",
			"salt '*' --return=master_bus --tag=monitoring cmd.run_all '/usr/lib/nagios/plugins/check_procs -w 150 -c 200'",
		},
		Commands: described(),
		Flags:    flags(),
		Refused: []cli.Refusal{
			cli.RefuseUser(),
			{Option: "range,R=", Reason: "there are no range servers", Hint: "-L a,b names minions, -N a nodegroup of the master, -E is a regular expression"},
			{Option: "gather-job-timeout=", Reason: "minions are not asked whether they still run a job: they say so by themselves", Hint: "--timeout is how long one may say nothing"},
		},
		Output:   true,
		Complete: complete,
		Run:      run,
	}
}

func flags() []urcli.Flag {
	const running, showing = "Running", "Showing"
	list := []urcli.Flag{
		&urcli.StringFlag{Category: running, Name: "timeout", Aliases: []string{"t"}, Usage: "give up minions that say nothing for `TIME`, as in 10, 0.5 or 1m (default: timeout of the configuration, 5)"},
		&urcli.StringFlag{Category: running, Name: "return", Usage: "minions hand what they return to the returners `NAME,...` too; the master gets it in any case"},
		&urcli.StringFlag{Category: running, Name: "tag", Usage: "the returner master_bus fires each return under `TAG` (default: master_bus.tag of the minion)"},
		&urcli.BoolFlag{Category: running, Name: "async", Usage: "start the job, print its id, and do not wait"},
		&urcli.BoolFlag{Category: running, Name: "follow", Usage: "show what cmd.* writes, line by line, while it runs"},
		&urcli.StringFlag{Category: running, Name: "batch", Aliases: []string{"b", "batch-size"}, Usage: "run on `N|N%` of the minions at a time; the master does it, and goes on when this command ends"},
		&urcli.StringFlag{Category: running, Name: "batch-wait", Usage: "wait `TIME` before the place of a minion that has ended is taken by the next"},
		&urcli.IntFlag{Category: running, Name: "batch-safe-limit", Usage: "run in a batch if there are more than `N` minions"},
		&urcli.IntFlag{Category: running, Name: "batch-safe-size", Value: 8, Usage: "of that batch, run on `N` at a time"},
		&urcli.BoolFlag{Category: running, Name: "failhard", Usage: "begin no further minion of a batch once one has failed"},
		&urcli.StringFlag{Category: running, Name: "max-fail", Usage: "begin no further minion of a batch once more than `N|N%` have failed"},
		&urcli.IntFlag{Category: running, Name: "subset", Usage: "run on `N` of the minions, chosen at random, connected ones first"},
		&urcli.StringFlag{Category: running, Name: "queue", Usage: "leave the job for minions that are away; each runs it once if it comes back within `TIME`, as in 2h"},
		&urcli.StringFlag{Category: running, Name: "metadata", Usage: "put `MAP` into the events of the job, as in '{ticket: 17}'"},
		&urcli.StringFlag{Category: running, Name: "return_config", Aliases: []string{"return-config"}, Usage: "returners take the settings below `NAME` instead of their usual ones"},
		&urcli.StringFlag{Category: running, Name: "return_kwargs", Aliases: []string{"return-kwargs"}, Usage: "single settings for the returners, as in '{port: 25}': `MAP`"},
		&urcli.BoolFlag{Category: running, Name: "config-dump", Usage: "print the settings of the master and exit"},
		&urcli.BoolFlag{Category: running, Name: "preview-target", Usage: "show which minions TARGET means, and run nothing"},
		&urcli.BoolFlag{Category: running, Name: "doc", Aliases: []string{"d"}, Usage: "show the documentation of FUNCTION, or of all"},
		&urcli.StringFlag{Category: running, Name: "args-separator", Value: ",", Usage: "`WORD` between the arguments of several functions"},
		&urcli.BoolFlag{Category: running, Name: "args-stdin", Usage: "read further arguments from standard input, one a line"},
		&urcli.StringFlag{Category: running, Name: "no-parse", Usage: "take the arguments `NAME,...` as text"},
		&urcli.BoolFlag{Category: showing, Name: "static", Aliases: []string{"s"}, Usage: "show all returns at the end, sorted"},
		&urcli.BoolFlag{Category: showing, Name: "progress", Aliases: []string{"p"}, Usage: "show a progress bar on a terminal; elsewhere, tell what is waited for"},
		&urcli.BoolFlag{Category: showing, Name: "verbose", Aliases: []string{"v"}, Usage: "show the job's id and what happens to it"},
		&urcli.BoolFlag{Category: showing, Name: "show-jid", Usage: "show the job's id"},
		&urcli.BoolFlag{Category: showing, Name: "summary", Usage: "show a summary at the end"},
		&urcli.BoolFlag{Category: showing, Name: "hide-timeout", Usage: "do not show minions that did not return (the exit code still tells)"},
		&urcli.BoolFlag{Category: showing, Name: "show-timeout", Usage: "show minions that did not return; the default"},
	}
	return slices.Concat(list, client.TargetFlags(""), client.MasterFlags(), client.LoginFlags("a"))
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	cfg, err := client.MasterConfig(env, opts)
	if err != nil {
		return err
	}
	if opts.Bool("config-dump") {
		return dump(env, opts, cfg)
	}
	q, err := request(env, opts, cfg)
	if err != nil {
		return err
	}
	login, err := client.NewLogin(env, opts, cfg)
	if err != nil {
		return err
	}
	show, err := jobview.New(env, opts, cfg)
	if err != nil {
		return err
	}
	conn, err := client.Connect(ctx, env, opts, cfg, login)
	if err != nil {
		return err
	}
	defer conn.Close()
	return show.Follow(ctx, conn, protocol.OpPublish, q, end(q))
}

// end is what of the job is to be seen.
func end(q protocol.Publish) jobview.End {
	switch {
	case q.Preview:
		return jobview.Previewed
	case q.Async:
		return jobview.Started
	}
	return jobview.Whole
}

// dump prints the settings of the master, what is secret among them left out.
func dump(env *cli.Env, opts *urcli.Context, cfg *config.Master) error {
	form, o := env.OutputForm(opts, "yaml")
	file, err := env.OpenOutput(opts)
	if err != nil {
		return err
	}
	defer file.Close()
	out, err := output.NewWriter(file, form, o)
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	settings := map[string]any{}
	for _, key := range cfg.Keys() {
		settings[key], _ = cfg.Lookup(key)
	}
	return errors.Join(out.Whole(config.Disclose(settings), ""), out.Close())
}

// request reads the command line into a request for the master.
func request(env *cli.Env, opts *urcli.Context, cfg *config.Master) (protocol.Publish, error) {
	kind, err := client.TargetKind(opts)
	if err != nil {
		return protocol.Publish{}, err
	}
	q := protocol.Publish{TargetType: string(kind), Delimiter: opts.String("delimiter"), Async: opts.Bool("async"), Preview: opts.Bool("preview-target"),
		Returner: opts.String("return"), ReturnTag: opts.String("tag"), ReturnConfig: opts.String("return_config"), Follow: opts.Bool("follow"), Lines: true}
	q.Timeout = job.Seconds(cfg.Timeout.Seconds())
	if err := spanOption(opts, "timeout", &q.Timeout); err != nil {
		return q, err
	}
	if err := further(&q, opts); err != nil {
		return q, err
	}
	words := opts.Args().Slice()
	if opts.Bool("doc") {
		return docRequest(q, words)
	}
	if len(words) == 0 || len(words) == 1 && !q.Preview {
		return q, salt.WithHint(cli.Usagef("a target and a function are needed"), "for example: salt '*' test.ping")
	}
	if q.Target = words[0]; opts.Bool("list") {
		q.Target = strings.Join(argument.List(words[0]), ",") // people put blanks between names
	}
	if err := salt.CheckUTF8([]byte(q.Target)); err != nil {
		return q, cli.Fail(cli.Usage, salt.WithHint(fmt.Errorf("the target: %w", err), salt.Hint(err)))
	}
	if q.Preview && len(words) == 1 {
		return q, nil
	}
	words, err = withStdin(env, opts, words)
	if err != nil {
		return q, err
	}
	q.Commands, err = commands(words[1], words[2:], opts)
	q.Compound = strings.Contains(words[1], ",")
	return q, err
}

// docRequest asks for documentation; without a target the first minion will do.
func docRequest(q protocol.Publish, words []string) (protocol.Publish, error) {
	q.Target = "*"
	if len(words) > 1 || len(words) == 1 && !strings.Contains(words[0], ".") {
		q.Target, words = words[0], words[1:]
	}
	c := job.Command{Function: "sys.doc"}
	for _, w := range words {
		c.Args = append(c.Args, w)
	}
	q.Commands = []job.Command{c}
	return q, nil
}

// further reads the options that say how a job goes to its minions.
func further(q *protocol.Publish, opts *urcli.Context) (err error) {
	q.Batch = job.BatchOptions{Size: opts.String("batch"), MaxFail: opts.String("max-fail")}
	if limit := opts.Int("batch-safe-limit"); limit > 0 {
		q.Batch.SafeLimit, q.Batch.SafeSize = limit, opts.Int("batch-safe-size")
	}
	if opts.Bool("failhard") {
		q.Batch.MaxFail = "0"
	}
	if err := errors.Join(spanOption(opts, "batch-wait", &q.Batch.Wait), spanOption(opts, "queue", &q.Queue)); err != nil {
		return err
	}
	if q.ReturnTag != "" && q.Returner == "" {
		return salt.WithHint(cli.Usagef("--tag needs --return: it is the tag under which a returner fires what the minions return"), "for example: --return=master_bus --tag="+q.ReturnTag)
	}
	if q.Subset = opts.Int("subset"); opts.IsSet("subset") && q.Subset <= 0 {
		return cli.Usagef("option --subset: %d is no number of minions above zero", q.Subset)
	}
	if q.Metadata.V, err = mapOption(opts, "metadata"); err != nil {
		return err
	}
	q.ReturnKwargs.V, err = mapOption(opts, "return_kwargs")
	return err
}

// spanOption puts the time that an option gives into to; without it to stays as it is.
func spanOption(opts *urcli.Context, name string, to *job.Seconds) error {
	d, err := cli.Duration(opts, name, time.Millisecond)
	if err == nil && opts.IsSet(name) {
		*to = job.Seconds(d.Seconds())
	}
	return err
}

// mapOption reads an option whose value is a map, nil where it is not given.
func mapOption(opts *urcli.Context, name string) (any, error) {
	text := opts.String(name)
	if text == "" {
		return nil, nil
	}
	v, err := argument.Word(text)
	if _, ok := v.(map[string]any); err != nil || !ok {
		return nil, cli.Usagef("option --%s: %q is no map, such as '{a: 1}'", name, text)
	}
	return v, nil
}

// withStdin appends the lines of standard input to the words.
func withStdin(env *cli.Env, opts *urcli.Context, words []string) ([]string, error) {
	if !opts.Bool("args-stdin") {
		return words, nil
	}
	scan := bufio.NewScanner(env.Stdin)
	scan.Buffer(nil, 64<<20)
	for scan.Scan() {
		words = append(words, scan.Text())
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("read arguments from standard input: %w", err)
	}
	return words, nil
}

// commands reads a function, or several with commas, and the arguments of each.
func commands(functions string, words []string, opts *urcli.Context) ([]job.Command, error) {
	names := strings.Split(functions, ",")
	lists := [][]string{words}
	if len(names) > 1 {
		var err error
		if lists, err = argument.Compound(names, words, opts.String("args-separator")); err != nil {
			return nil, cli.Fail(cli.Usage, err)
		}
	}
	options := argument.Options{NoParse: argument.List(opts.String("no-parse"))}
	list := make([]job.Command, len(names))
	for i, name := range names {
		f, err := salt.ParseFunction(name)
		if err != nil {
			return nil, cli.Fail(cli.Usage, err)
		}
		list[i].Function = f
		if list[i].Args, list[i].Kwargs, err = argument.Parse(lists[i], options); err != nil {
			return nil, cli.Fail(cli.Usage, err)
		}
	}
	return list, nil
}
