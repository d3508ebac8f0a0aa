// Package saltcmd is the command salt: it runs functions on minions through the master and shows
// their returns as they arrive.
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

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/cli/jobview"
	"github.com/brinebus/brine/internal/config"
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

// spec defines the command line and what runs.
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
		Refused: append(cli.RefuseExecutors(), []cli.Refusal{
			cli.RefuseUser(),
			{Option: "range,R=", Reason: "there are no range servers", Hint: "-L a,b names minions, -N a nodegroup of the master, -E is a regular expression"},
			{Option: "hosts,H", Reason: "there are no rosters, which belong to salt-ssh", Hint: "salt-run manage.up lists the minions that are connected, salt-key -L all keys"},
			{Option: "gather-job-timeout=", Reason: "minions are not asked whether they still run a job: they say so by themselves", Hint: "--timeout is how long one may say nothing"},
		}...),
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
	q, err := readRequest(env, opts, cfg)
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
	q.options.Waiting = show.Waits
	return show.Follow(ctx, func(ctx context.Context) (*brine.Job, error) { return q.begin(ctx, conn) }, q.end())
}

// request is the job in the command line.
type request struct {
	target   brine.Target
	commands []brine.Command
	compound bool // several functions, separated by commas
	preview  bool
	options  brine.RunOptions
}

// begin starts the job on the master.
func (q *request) begin(ctx context.Context, conn *brine.Conn) (*brine.Job, error) {
	switch {
	case q.preview:
		ids, err := conn.Preview(ctx, q.target, q.commands, q.options)
		return &brine.Job{Minions: ids}, err
	case q.compound:
		return conn.RunAll(ctx, q.target, q.commands, q.options)
	}
	return conn.Run(ctx, q.target, q.commands[0], q.options)
}

// end returns which results of the job are shown.
func (q *request) end() jobview.End {
	switch {
	case q.preview:
		return jobview.Previewed
	case q.options.Detach:
		return jobview.Started
	}
	return jobview.Whole
}

// dump prints the settings of the master without secrets.
func dump(env *cli.Env, opts *urcli.Context, cfg *config.Master) error {
	out, err := env.OpenResults(opts, "yaml", "")
	if err != nil {
		return err
	}
	defer out.File.Close()
	settings := map[string]any{}
	for _, key := range cfg.Keys() {
		settings[key], _ = cfg.Lookup(key)
	}
	return errors.Join(out.Whole(config.Disclose(settings), ""), out.Close())
}

// readRequest reads the command line.
func readRequest(env *cli.Env, opts *urcli.Context, cfg *config.Master) (q request, err error) {
	kind, err := client.TargetKind(opts)
	if err != nil {
		return q, err
	}
	q.target, q.preview = brine.Target{Type: string(kind), Delimiter: opts.String("delimiter")}, opts.Bool("preview-target")
	q.options = brine.RunOptions{
		Timeout: cfg.Timeout, Detach: opts.Bool("async"), Output: opts.Bool("follow"),
		Returners: opts.String("return"), ReturnTag: opts.String("tag"), ReturnerConfig: opts.String("return_config"),
	}
	if err := spanOption(opts, "timeout", &q.options.Timeout); err != nil {
		return q, err
	}
	if err := further(&q.options, opts); err != nil {
		return q, err
	}
	words := opts.Args().Slice()
	if opts.Bool("doc") {
		return docRequest(q, words)
	}
	if len(words) == 0 || len(words) == 1 && !q.preview {
		return q, salt.WithHint(cli.Usagef("a target and a function are needed"), "for example: salt '*' test.ping")
	}
	if q.target.Expr = words[0]; opts.Bool("list") {
		q.target.Expr = strings.Join(argument.List(words[0]), ",") // users may put blanks between names
	}
	if err := salt.CheckUTF8([]byte(q.target.Expr)); err != nil {
		return q, cli.Fail(cli.Usage, salt.WithHint(fmt.Errorf("the target: %w", err), salt.Hint(err)))
	}
	if q.preview && len(words) == 1 {
		return q, nil
	}
	words, err = withStdin(env, opts, words)
	if err != nil {
		return q, err
	}
	q.commands, err = commands(words[1], words[2:], opts)
	q.compound = strings.Contains(words[1], ",")
	return q, err
}

// docRequest returns a request for documentation; without a target it uses the first minion.
func docRequest(q request, words []string) (request, error) {
	q.target.Expr = "*"
	if len(words) > 1 || len(words) == 1 && !strings.Contains(words[0], ".") {
		q.target.Expr, words = words[0], words[1:]
	}
	c := brine.Call("sys.doc")
	for _, w := range words {
		c.Args = append(c.Args, w)
	}
	q.commands = []brine.Command{c}
	return q, nil
}

// further reads the options for how a job is sent to minions.
func further(o *brine.RunOptions, opts *urcli.Context) (err error) {
	o.Batch, o.BatchMaxFail = opts.String("batch"), opts.String("max-fail")
	if limit := opts.Int("batch-safe-limit"); limit > 0 {
		o.SafeLimit, o.SafeSize = limit, opts.Int("batch-safe-size")
	}
	if opts.Bool("failhard") {
		o.BatchMaxFail = "0"
	}
	if err := errors.Join(spanOption(opts, "batch-wait", &o.BatchWait), spanOption(opts, "queue", &o.Queue)); err != nil {
		return err
	}
	if o.ReturnTag != "" && o.Returners == "" {
		return salt.WithHint(cli.Usagef("--tag needs --return: it is the tag under which a returner fires what the minions return"), "for example: --return=master_bus --tag="+o.ReturnTag)
	}
	if o.Subset = opts.Int("subset"); opts.IsSet("subset") && o.Subset <= 0 {
		return cli.Usagef("option --subset: %d is not a number of minions above zero", o.Subset)
	}
	metadata, err := mapOption(opts, "metadata")
	if metadata != nil {
		o.Metadata = metadata
	}
	if err != nil {
		return err
	}
	o.ReturnerKwargs, err = mapOption(opts, "return_kwargs")
	return err
}

// spanOption stores the duration of an option in to; without the option, to is unchanged.
func spanOption(opts *urcli.Context, name string, to *time.Duration) error {
	d, err := cli.Duration(opts, name, time.Millisecond)
	if err == nil && opts.IsSet(name) {
		*to = d
	}
	return err
}

// mapOption reads an option with a map, nil if it is not given.
func mapOption(opts *urcli.Context, name string) (map[string]any, error) {
	text := opts.String(name)
	if text == "" {
		return nil, nil
	}
	v, err := argument.Word(text)
	m, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, cli.Usagef("option --%s: %q is not a map, such as '{a: 1}'", name, text)
	}
	return m, nil
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

// commands reads a function, or several separated by commas, and the arguments of each.
func commands(functions string, words []string, opts *urcli.Context) ([]brine.Command, error) {
	names := strings.Split(functions, ",")
	lists := [][]string{words}
	if len(names) > 1 {
		var err error
		if lists, err = argument.Compound(names, words, opts.String("args-separator")); err != nil {
			return nil, cli.Fail(cli.Usage, err)
		}
	}
	options := argument.Options{NoParse: argument.List(opts.String("no-parse"))}
	list := make([]brine.Command, len(names))
	for i, name := range names {
		f, err := salt.ParseFunction(name)
		if err != nil {
			return nil, cli.Fail(cli.Usage, err)
		}
		list[i].Function = string(f)
		if list[i].Args, list[i].Kwargs, err = argument.Parse(lists[i], options); err != nil {
			return nil, cli.Fail(cli.Usage, err)
		}
		argument.JobIDsAsText(list[i].Args, list[i].Kwargs)
	}
	return list, nil
}
