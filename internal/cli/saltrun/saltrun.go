// Package saltrun is the command salt-run: it runs a runner on the master and shows its return.
package saltrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/cli/jobview"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Run runs salt-run.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"[options] RUNNER.FUNCTION [ARGUMENT...] [NAME=VALUE...]", "--wheel [options] MODULE.FUNCTION [ARGUMENT...]", "-d [PATTERN]"},
		Summary:  "Run a runner on the master.",
		Examples: []string{"salt-run manage.status", "salt-run jobs.list_jobs since=2h", "salt-run jobs.lookup_jid 20261121113344286549", "salt-run --wheel key.list_all", "salt-run -d"},
		Flags:    flags(),
		Ignored:  []string{"skip-grains"},
		Refused: []cli.Refusal{
			cli.RefuseUser(),
			{Option: "jid=", Reason: "the master gives each run its job id", Hint: "'salt-run --async' prints the id, and 'salt-run jobs.lookup_jid ID' shows what came of it"},
		},
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
	q, err := readRequest(opts)
	if err != nil {
		return err
	}
	err = ask(ctx, env, opts, q)
	if isCheck(q) && err != nil && !cli.Reported(err) && ctx.Err() == nil {
		return client.Unwell(env, err)
	}
	return err
}

// ask runs the request on the master and shows the result.
func ask(ctx context.Context, env *cli.Env, opts *urcli.Context, q request) error {
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
		return watch(wait, env, opts, cfg, login, q.command)
	}
	out, err := env.OpenResults(opts, cfg.Output, cfg.OutputIndent)
	if err != nil {
		return err
	}
	defer out.File.Close()
	conn, err := client.Connect(ctx, env, opts, cfg, login)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer env.Waiting(ctx, cli.Patience, func() string { return "the runner " + q.command.Function })()
	var began brine.RunnerJob
	res, err := q.result(wait, conn, func(j brine.RunnerJob) {
		began = j
		env.Debug(opts, "the runner runs", "fun", q.command.Function, "jid", j.ID)
	})
	if err != nil {
		return bound(client.Error(err), began)
	}
	if q.async {
		env.Note("the runner goes on in the master; its return comes with the tag %s/ret", began.Tag)
		return errors.Join(out.Whole(map[string]any{"jid": began.ID, "tag": began.Tag}, ""), out.Close())
	}
	env.Debug(opts, "the runner has returned", "jid", began.ID, "success", res.Success, "retcode", res.Retcode)
	returned, err := value.DecodeExact(res.JSON)
	if err != nil {
		return fmt.Errorf("unreadable answer: %w", err)
	}
	if err := errors.Join(out.Whole(returned, res.Outputter), out.Close()); err != nil {
		return err
	}
	switch {
	case res.Success:
		return nil
	case isCheck(q):
		return cli.Exit(res.Retcode) // it is meant for the caller
	}
	return cli.Exit(cli.Failed)
}

// request is the runner or wheel function in the command line.
type request struct {
	wheel, async bool
	command      brine.Command
}

// result runs the request on the master. If it continues there in the background, there is no
// return.
func (q request) result(ctx context.Context, conn *brine.Conn, begun func(brine.RunnerJob)) (brine.Result, error) {
	o := brine.RunnerOptions{Begun: begun, Detach: q.async}
	if q.wheel {
		return conn.WheelResult(ctx, q.command, o)
	}
	return conn.RunnerResult(ctx, q.command, o)
}

// isCheck reports whether the caller is a monitoring program that needs one line and an exit code
// in any case.
func isCheck(q request) bool {
	return q.command.Function == "status.health" && !q.async && !q.wheel
}

// followed returns the job that jobs.follow has to show.
func followed(q request) (salt.JID, bool) {
	if q.command.Function != "jobs.follow" || q.async || q.wheel || len(q.command.Args)+len(q.command.Kwargs) != 1 {
		return "", false
	}
	word := q.command.Kwargs["jid"]
	if len(q.command.Args) == 1 {
		word = q.command.Args[0]
	}
	jid, err := salt.ParseJID(fmt.Sprint(word))
	return jid, err == nil
}

// follow shows the progress of a job as the command that started it would. When the time limit
// ends, or with Ctrl-C, the job continues.
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
	err = show.Follow(wait, func(ctx context.Context) (*brine.Job, error) {
		return conn.Follow(ctx, string(jid), brine.RunOptions{Waiting: show.Waits})
	}, jobview.Whole)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return cli.Fail(cli.NoReturn, salt.WithHint(errors.New("the job did not end in time"), "it goes on; salt-run jobs.follow "+string(jid)))
	}
	return err
}

func readRequest(opts *urcli.Context) (request, error) {
	words := opts.Args().Slice()
	q := request{async: opts.Bool("async"), wheel: opts.Bool("wheel")}
	if opts.Bool("doc") {
		doc := "doc.runner"
		if q.wheel {
			doc, q.wheel = "doc.wheel", false
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
	q.command = brine.Command{Function: string(f), Args: args, Kwargs: kwargs}
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

func bound(err error, began brine.RunnerJob) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return cli.Fail(cli.NoReturn, salt.WithHint(errors.New("the runner did not return in time"),
			fmt.Sprintf("its return comes as the event %s/ret", began.Tag)))
	}
	return err
}
