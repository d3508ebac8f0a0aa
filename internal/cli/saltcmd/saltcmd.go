// Package saltcmd is the command salt: it asks the master to run functions on
// minions and shows their returns as they arrive.
package saltcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	urcli "github.com/urfave/cli/v2"

	"brine/internal/argument"
	"brine/internal/bus"
	"brine/internal/cli"
	"brine/internal/cli/client"
	"brine/internal/config"
	"brine/internal/job"
	"brine/internal/protocol"
	"brine/internal/salt"
	"brine/internal/target"
)

// Run runs salt.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"[options] TARGET FUNCTION [ARGUMENT...] [NAME=VALUE...]", "[options] -d [FUNCTION]"},
		Summary:  "Run a function on the minions that TARGET means, and show what each returns.",
		Examples: []string{
			"salt '*' test.ping", "salt web1 cmd.run 'uname -sr'", "salt -L web1,web2 grains.get os --out json",
			"salt -C 'G@os:Debian and web*' test.version,test.ping , -t 10", "salt -d test.ping",
			"salt '*' --return=master_bus --tag=monitoring cmd.run_all '/usr/lib/nagios/plugins/check_procs -w 150 -c 200'",
		},
		Flags:  flags(),
		Output: true,
		Run:    run,
	})
}

// targetFlags choose what TARGET is; without one it is a glob.
var targetFlags = []struct {
	name, alias, usage string
	kind               target.Kind
}{
	{"list", "L", "TARGET is a list of ids with commas", target.List},
	{"pcre", "E", "TARGET is a regular expression", target.PCRE},
	{"grain", "G", "TARGET is a grain and a glob, as in os:Debian", target.Grain},
	{"grain-pcre", "P", "TARGET is a grain and a regular expression", target.GrainPCRE},
	{"nodegroup", "N", "TARGET is a nodegroup of the master", target.Nodegroup},
	{"compound", "C", "TARGET is a compound expression", target.Compound},
	{"pillar", "I", "TARGET is a pillar key and a glob", target.Pillar},
	{"pillar-pcre", "J", "TARGET is a pillar key and a regular expression", target.PillarPCRE},
	{"ipcidr", "S", "TARGET is an address or a network", target.IPCIDR},
}

func flags() []urcli.Flag {
	const running, showing, targeting = "Running", "Showing", "Targeting"
	list := []urcli.Flag{
		&urcli.StringFlag{Category: running, Name: "timeout", Aliases: []string{"t"}, Usage: "give up minions that say nothing for `SECONDS` (default: timeout of the configuration, 5)"},
		&urcli.StringFlag{Category: running, Name: "return", Usage: "minions hand what they return to the returners `NAME,...` too; the master gets it in any case"},
		&urcli.StringFlag{Category: running, Name: "tag", Usage: "the returner master_bus fires each return under `TAG` (default: master_bus.tag of the minion)"},
		&urcli.BoolFlag{Category: running, Name: "async", Usage: "start the job, print its id, and do not wait"},
		&urcli.BoolFlag{Category: running, Name: "preview-target", Usage: "show which minions TARGET means, and run nothing"},
		&urcli.BoolFlag{Category: running, Name: "doc", Aliases: []string{"d"}, Usage: "show the documentation of FUNCTION, or of all"},
		&urcli.StringFlag{Category: running, Name: "args-separator", Value: ",", Usage: "`WORD` between the arguments of several functions"},
		&urcli.BoolFlag{Category: running, Name: "args-stdin", Usage: "read further arguments from standard input, one a line"},
		&urcli.StringFlag{Category: running, Name: "no-parse", Usage: "take the arguments `NAME,...` as text"},
		&urcli.BoolFlag{Category: showing, Name: "static", Aliases: []string{"s"}, Usage: "show all returns at the end, sorted"},
		&urcli.BoolFlag{Category: showing, Name: "verbose", Aliases: []string{"v"}, Usage: "show the job's id and what happens to it"},
		&urcli.BoolFlag{Category: showing, Name: "show-jid", Usage: "show the job's id"},
		&urcli.BoolFlag{Category: showing, Name: "summary", Usage: "show a summary at the end"},
		&urcli.BoolFlag{Category: showing, Name: "hide-timeout", Usage: "do not show minions that did not return (the exit code still tells)"},
		&urcli.BoolFlag{Category: showing, Name: "show-timeout", Usage: "show minions that did not return; the default"},
	}
	for _, t := range targetFlags {
		list = append(list, &urcli.BoolFlag{Category: targeting, Name: t.name, Aliases: []string{t.alias}, Usage: t.usage})
	}
	list = append(list, &urcli.StringFlag{Category: targeting, Name: "delimiter", Value: ":", Usage: "`TEXT` between the levels of a grain or pillar target"})
	return append(list, client.LoginFlags("a")...)
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	cfg, err := client.MasterConfig(env, opts)
	if err != nil {
		return err
	}
	q, err := request(env, opts, cfg)
	if err != nil {
		return err
	}
	login, err := client.NewLogin(env, opts, cfg)
	if err != nil {
		return err
	}
	show, err := newShow(env, opts, cfg)
	if err != nil {
		return err
	}
	defer show.file.Close()
	conn, err := client.Dial(env, cfg.SockDir, client.MasterSocket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := login.Do(ctx, conn); err != nil {
		return err
	}
	return follow(ctx, env, opts, conn, q, show)
}

// request reads the command line into a request for the master.
func request(env *cli.Env, opts *urcli.Context, cfg *config.Master) (protocol.Publish, error) {
	q := protocol.Publish{TargetType: string(target.Glob), Delimiter: opts.String("delimiter"), Async: opts.Bool("async"), Preview: opts.Bool("preview-target"),
		Returner: opts.String("return"), ReturnTag: opts.String("tag")}
	for _, t := range targetFlags {
		if !opts.Bool(t.name) {
			continue
		}
		if q.TargetType != string(target.Glob) {
			return q, cli.Usagef("the options for the kind of target exclude each other: %s and %s", q.TargetType, t.kind)
		}
		q.TargetType = string(t.kind)
	}
	timeout, err := timeout(opts.String("timeout"), cfg.Timeout)
	if err != nil {
		return q, err
	}
	q.Timeout = timeout
	words := opts.Args().Slice()
	if opts.Bool("doc") {
		return docRequest(q, words)
	}
	if len(words) == 0 || len(words) == 1 && !q.Preview {
		return q, salt.WithHint(cli.Usagef("a target and a function are needed"), "for example: salt '*' test.ping")
	}
	q.Target = words[0]
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

func timeout(text string, byDefault time.Duration) (job.Seconds, error) {
	if text == "" {
		return job.Seconds(byDefault.Seconds()), nil
	}
	v, err := argument.Word(text)
	if err == nil {
		switch n := v.(type) {
		case int64:
			if n > 0 {
				return job.Seconds(n), nil
			}
		case float64:
			if n > 0 {
				return job.Seconds(n), nil
			}
		}
	}
	return 0, cli.Usagef("option --timeout: %q is no number of seconds above zero", text)
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

// startTime bounds how long the master may take to begin a job.
const startTime = 30 * time.Second

// follow runs the job and shows its course.
func follow(ctx context.Context, env *cli.Env, opts *urcli.Context, conn *bus.Conn, q protocol.Publish, show *show) error {
	stop := env.Waiting(ctx, cli.Patience, func() string { return show.waitingFor() })
	defer stop()
	stream, err := conn.Call(protocol.OpPublish, q)
	if err != nil {
		return client.Error(err)
	}
	begin, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var start job.Start
	if err := stream.Decode(begin, &start); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return cli.Fail(cli.Unavailable, fmt.Errorf("the master did not start the job within %s", startTime))
		}
		return client.Error(err)
	}
	switch {
	case q.Preview:
		return show.preview(start)
	case q.Async:
		return show.async(start)
	}
	show.begin(start)
	err = drain(ctx, stream, show)
	stop()
	var signal *cli.SignalError
	if errors.As(context.Cause(ctx), &signal) {
		show.interrupted()
		return errors.Join(context.Cause(ctx), show.close())
	}
	if closed := show.close(); err == nil {
		err = closed
	}
	if err != nil {
		return client.Error(err)
	}
	return show.verdict()
}

func drain(ctx context.Context, stream *bus.Stream, show *show) error {
	for {
		b, err := stream.Next(ctx)
		if isEnd(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := show.update(b); err != nil {
			return err
		}
	}
}
