// Package saltrun is the command salt-run: it asks the master to run a runner
// and shows what that returned.
package saltrun

import (
	"context"
	"errors"
	"fmt"
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

// Run runs salt-run.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"[options] RUNNER.FUNCTION [ARGUMENT...] [NAME=VALUE...]", "--wheel [options] MODULE.FUNCTION [ARGUMENT...]", "-d [PATTERN]"},
		Summary:  "Run a runner on the master.",
		Examples: []string{"salt-run manage.status", "salt-run jobs.list_jobs since=2h", "salt-run jobs.lookup_jid 20261121113344286549", "salt-run --wheel key.list_all", "salt-run -d"},
		Flags:    flags(),
		Ignored:  []string{"skip-grains"},
		Refused:  []cli.Refusal{cli.RefuseUser()},
		Output:   true,
		Complete: complete,
		Run:      run,
	})
}

func flags() []urcli.Flag {
	return append([]urcli.Flag{
		&urcli.StringFlag{Category: "Running", Name: "timeout", Aliases: []string{"t"}, Usage: "wait at most `TIME` for the runner (default: as long as it runs)"},
		&urcli.BoolFlag{Category: "Running", Name: "async", Usage: "start the runner, print the tag of its events, and do not wait"},
		&urcli.BoolFlag{Category: "Running", Name: "doc", Aliases: []string{"d"}, Usage: "show the documentation of the runners that match PATTERN"},
		&urcli.StringFlag{Category: "Running", Name: "no-parse", Usage: "take the arguments `NAME,...` as text"},
		&urcli.BoolFlag{Category: "Running", Name: "wheel", Usage: "run a wheel function, which manages the master itself: key.*, config.values"},
		&urcli.BoolFlag{Category: "Running", Name: "quiet", Aliases: []string{"q"}, Usage: "show no result, and nothing but errors on standard error"},
	}, append(client.MasterFlags(), client.LoginFlags("a")...)...)
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	q, err := request(opts)
	if err != nil {
		return err
	}
	err = ask(ctx, env, opts, q)
	if isCheck(q) && err != nil && !cli.Reported(err) && ctx.Err() == nil {
		return client.Unwell(env, err)
	}
	return err
}

// ask has the master run what is asked for, and shows what comes of it.
func ask(ctx context.Context, env *cli.Env, opts *urcli.Context, q protocol.Run) error {
	wait, cancel, err := bounded(ctx, opts)
	if err != nil {
		return err
	}
	defer cancel()
	cfg, err := client.MasterConfig(env, opts)
	if err != nil {
		return err
	}
	login, err := client.NewLogin(env, opts, cfg)
	if err != nil {
		return err
	}
	if jid, ok := followed(q); ok && !opts.Bool("quiet") {
		return follow(ctx, wait, env, opts, cfg, login, jid)
	}
	if watches(q) {
		return watch(wait, env, opts, cfg, login, q.Command)
	}
	form, o := env.OutputForm(opts, cfg.Output)
	if opts.Bool("quiet") {
		form = "quiet"
	}
	file, err := env.OpenOutput(opts)
	if err != nil {
		return err
	}
	defer file.Close()
	out, err := output.NewWriter(file, form, o)
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	conn, err := client.Connect(ctx, env, opts, cfg, login)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer env.Waiting(ctx, cli.Patience, func() string { return "the runner " + string(q.Command.Function) })()
	stream, err := conn.Call(protocol.OpRun, q)
	if err != nil {
		return client.Error(err)
	}
	var start protocol.RunStart
	if err := stream.Decode(wait, &start); err != nil {
		return bound(client.Error(err), start)
	}
	env.Debug(opts, "the runner runs", "fun", q.Command.Function, "jid", start.JID)
	if q.Async {
		env.Note("the runner goes on in the master; its return comes with the tag %s/ret", start.Tag)
		return errors.Join(out.Whole(map[string]any{"jid": string(start.JID), "tag": start.Tag}, ""), out.Close())
	}
	var res protocol.RunResult
	if err := stream.Decode(wait, &res); err != nil {
		return bound(client.Error(err), start)
	}
	env.Debug(opts, "the runner has returned", "jid", start.JID, "success", res.Success, "retcode", res.Retcode)
	if res.Error != "" {
		return client.Failed(res)
	}
	if err := errors.Join(out.Whole(res.Return.V, res.Out), out.Close()); err != nil {
		return err
	}
	switch {
	case res.Success:
		return nil
	case isCheck(q):
		return cli.Exit(res.Retcode) // which is meant for who calls it
	}
	return cli.Exit(cli.Failed)
}

// isCheck says whether a program calls that wants an answer in one line and by its exit code,
// whatever happens.
func isCheck(q protocol.Run) bool {
	return q.Command.Function == "status.health" && !q.Async && !q.Wheel
}

// followed says which job jobs.follow is to show.
func followed(q protocol.Run) (salt.JID, bool) {
	if q.Command.Function != "jobs.follow" || q.Async || q.Wheel || len(q.Command.Args)+len(q.Command.Kwargs) != 1 {
		return "", false
	}
	word := q.Command.Kwargs["jid"]
	if len(q.Command.Args) == 1 {
		word = q.Command.Args[0]
	}
	jid, err := salt.ParseJID(fmt.Sprint(word))
	return jid, err == nil
}

// follow shows the course of a job as the command that started it would. The end
// of the time limit leaves the job to itself, as Ctrl-C does.
func follow(ctx, wait context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, login *client.Login, jid salt.JID) error {
	show, err := jobview.New(env, opts, cfg)
	if err != nil {
		return err
	}
	conn, err := client.Connect(ctx, env, opts, cfg, login)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = show.Follow(wait, conn, protocol.OpFollow, protocol.Follow{JID: jid}, jobview.Whole)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return cli.Fail(cli.NoReturn, salt.WithHint(errors.New("the job did not end in time"), "it goes on; salt-run jobs.follow "+string(jid)))
	}
	return err
}

func request(opts *urcli.Context) (protocol.Run, error) {
	words := opts.Args().Slice()
	q := protocol.Run{Async: opts.Bool("async"), Wheel: opts.Bool("wheel")}
	if opts.Bool("doc") {
		doc := "doc.runner"
		if q.Wheel {
			doc, q.Wheel = "doc.wheel", false
		}
		words = append([]string{doc}, words...)
	}
	if len(words) == 0 {
		return q, salt.WithHint(cli.Usagef("a runner is needed"), "for example: salt-run manage.status; 'salt-run -d' lists them")
	}
	f, err := salt.ParseFunction(words[0])
	if err != nil {
		return q, cli.Fail(cli.Usage, err)
	}
	args, kwargs, err := argument.Parse(words[1:], argument.Options{NoParse: argument.List(opts.String("no-parse"))})
	if err != nil {
		return q, cli.Fail(cli.Usage, err)
	}
	q.Command = job.Command{Function: f, Args: args, Kwargs: kwargs}
	return q, nil
}

// bounded returns a context with the time limit, if there is one.
func bounded(ctx context.Context, opts *urcli.Context) (context.Context, context.CancelFunc, error) {
	if !opts.IsSet("timeout") {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	d, err := cli.Duration(opts, "timeout", time.Millisecond)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	return ctx, cancel, nil
}

func bound(err error, start protocol.RunStart) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return cli.Fail(cli.NoReturn, salt.WithHint(errors.New("the runner did not return in time"),
			fmt.Sprintf("its return comes as the event %s/ret", start.Tag)))
	}
	return err
}
