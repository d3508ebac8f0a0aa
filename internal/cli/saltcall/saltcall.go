// Package saltcall is the command salt-call: it runs a function on this minion, in its own process,
// and sends the return to the master.
package saltcall

import (
	"context"
	"errors"
	"fmt"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/cli/route"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Run runs salt-call.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"[options] FUNCTION [ARGUMENT...] [NAME=VALUE...]", "-d [PATTERN]", "-g"},
		Summary:  "Run a function on this minion. The minion's daemon is used where it runs; without it salt-call connects to the master itself; with --local it connects to no daemon.",
		Examples: []string{"salt-call test.ping", "salt-call --local grains.items", `salt-call event.fire_master '{"data": "message for the master"}' mytag`},
		Flags:    flags(),
		Ignored:  []string{"skip-grains", "refresh-grains-cache", "module-dirs=", "m=", "states-dir=", "proxyid=", "profiling-path=", "enable-profiling"},
		Refused:  append(cli.RefuseExecutors(), cli.RefuseUser()),
		Output:   true,
		Complete: complete,
		Run:      run,
	})
}

func flags() []urcli.Flag {
	return []urcli.Flag{
		&urcli.BoolFlag{Category: "Running", Name: "local", Usage: "run without a master and without the daemon"},
		&urcli.StringFlag{Category: "Running", Name: "timeout", Aliases: []string{"t"}, Usage: "wait at most `TIME` for the master to answer (default: auth_timeout of the configuration)"},
		&urcli.StringFlag{Category: "Running", Name: "master", Usage: "use the master at `ADDRESS`"},
		&urcli.StringFlag{Category: "Running", Name: "id", Usage: "be the minion `ID`"},
		&urcli.StringFlag{Category: "Running", Name: "no-parse", Usage: "take the arguments `NAME,...` as text"},
		&urcli.StringFlag{Category: "Running", Name: "return", Usage: "hand what is returned to the returners `NAME,...` too"},
		&urcli.StringFlag{Category: "Running", Name: "tag", Usage: "the returner master_bus fires the return under `TAG` (default: master_bus.tag of the configuration)"},
		&urcli.BoolFlag{Category: "Running", Name: "no-return-event", Usage: "do not tell the master what was returned"},
		&urcli.BoolFlag{Category: "Showing", Name: "retcode-passthrough", Usage: "end with the return code of the function"},
		&urcli.BoolFlag{Category: "Showing", Name: "doc", Aliases: []string{"d"}, Usage: "show the documentation of the functions that match PATTERN"},
		&urcli.BoolFlag{Category: "Showing", Name: "grains", Aliases: []string{"g"}, Usage: "show the grains of this minion"},
	}
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	command, err := command(opts)
	if err != nil {
		return err
	}
	cfg, err := client.MinionConfig(env, opts, overrides(opts))
	if err != nil {
		return err
	}
	if isCheck(opts, command) {
		return check(ctx, env, opts, cfg)
	}
	log, err := env.OpenLog(opts, cli.LogSettings{Level: cfg.LogLevel, Format: cfg.LogFormat})
	if err != nil {
		return err
	}
	defer log.Close()
	out, err := env.OpenResults(opts, cfg.Output, cfg.OutputIndent)
	if err != nil {
		return err
	}
	defer out.File.Close()
	wait, err := patience(opts, cfg)
	if err != nil {
		return err
	}
	to, err := route.Find(ctx, env, cfg, opts.Bool("local"), wait, log.Logger)
	if err != nil {
		return err
	}
	defer to.Close()
	c := call{env: env, opts: opts, cfg: cfg, log: log, to: to, wait: wait}
	return c.run(ctx, command, out)
}

func overrides(opts *urcli.Context) map[string]any {
	o := map[string]any{}
	for _, name := range []string{"master", "id"} {
		if opts.IsSet(name) {
			o[name] = opts.String(name)
		}
	}
	return o
}

// command reads the function and its arguments.
func command(opts *urcli.Context) (job.Command, error) {
	words := opts.Args().Slice()
	switch {
	case opts.Bool("doc"):
		words = append([]string{"sys.doc"}, words...)
	case opts.Bool("grains"):
		words = []string{"grains.items"}
	case len(words) == 0:
		return job.Command{}, salt.WithHint(cli.Usagef("a function is needed"), "for example: salt-call test.ping; 'salt-call -d' lists them")
	}
	f, err := salt.ParseFunction(words[0])
	if err != nil {
		return job.Command{}, cli.Fail(cli.Usage, err)
	}
	args, kwargs, err := argument.Parse(words[1:], argument.Options{NoParse: argument.List(opts.String("no-parse"))})
	if err != nil {
		return job.Command{}, cli.Fail(cli.Usage, err)
	}
	return job.Command{Function: f, Args: args, Kwargs: kwargs}, nil
}

// patience returns how long to wait for the master.
func patience(opts *urcli.Context, cfg *config.Minion) (time.Duration, error) {
	if !opts.IsSet("timeout") {
		return cfg.AuthTimeout, nil
	}
	return cli.Duration(opts, "timeout", time.Millisecond)
}

// call is one run of salt-call.
type call struct {
	env  *cli.Env
	opts *urcli.Context
	cfg  *config.Minion
	log  *logging.Log
	to   route.Route
	wait time.Duration
}

func (c *call) run(ctx context.Context, command job.Command, out *cli.Results) error {
	jid := salt.NewJID(time.Now())
	host, fire := route.Host(c.cfg, c.to, c.env.Getenv, c.log.Logger)
	back, err := c.returners(fire)
	if err != nil {
		return errors.Join(err, out.Close())
	}
	c.log.Debug("the function runs", logging.KeyJID, jid, "fun", command.Function, "local", c.opts.Bool("local"))
	stop := c.env.Waiting(ctx, cli.Patience, func() string { return "the function " + string(command.Function) })
	res := module.Run(ctx, function.Call{JID: jid, Function: command.Function, Args: command.Args, Kwargs: command.Kwargs, Host: host, Reach: salt.Reach{Free: true, Programs: true}})
	stop()
	c.log.Debug("the function has returned", logging.KeyJID, jid, "success", res.Success, "retcode", res.Retcode)
	var signal *cli.SignalError
	if errors.As(context.Cause(ctx), &signal) {
		return context.Cause(ctx)
	}
	ret := returned(c.cfg.ID, jid, command, res)
	back.Early(ctx, ret)
	announced := c.tell(ctx, jid, command, res)
	back.Late(ctx, ret)
	var unknown *function.UnknownError
	var arguments *function.ArgumentError
	if errors.As(res.Err, &unknown) || errors.As(res.Err, &arguments) {
		err := res.Err
		if unknown != nil && unknown.Cause == nil && len(unknown.Nearest) == 0 {
			err = salt.WithHint(err, "'salt-call -d' lists the functions")
		}
		return errors.Join(cli.Fail(cli.Failed, err), out.Close())
	}
	if err := out.Return(output.Return{ID: "local", Value: res.Return, Hint: res.Out, Failed: !res.Success}); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	if res.Err == nil && !res.Success { // the return value may not show the failure
		fmt.Fprintf(c.env.Stderr, "ERROR: %s ended with return code %d\n", command.Function, res.Retcode)
	}
	return c.verdict(command, res, announced)
}

// codesAreOurs are the modules whose return codes are used as exit codes.
var codesAreOurs = map[string]bool{"mine": true, "publish": true}

// verdict returns the exit code as an error.
func (c *call) verdict(command job.Command, res function.Result, announced error) error {
	switch {
	case announced != nil:
		return announced
	case res.Err != nil && route.Refused(res.Err):
		return cli.Exit(cli.NoPermission)
	case res.Retcode != 0 && (c.opts.Bool("retcode-passthrough") || codesAreOurs[command.Function.Module()]):
		return cli.Exit(res.Retcode & 0xff)
	case !res.Success:
		return cli.Exit(cli.Failed)
	}
	return nil
}

// tell sends the return to the master. A failure is only a warning: the function has run, and its
// result is valid.
func (c *call) tell(ctx context.Context, jid salt.JID, command job.Command, res function.Result) error {
	if c.opts.Bool("no-return-event") {
		return nil
	}
	state := job.Done
	if !res.Success {
		state = job.Failed
	}
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	err := c.to.Return(ctx, protocol.LocalReturn{JID: jid, Command: command, Report: job.Report{
		State: state, Return: value.Value{V: res.Return}, Retcode: value.Value{V: res.Retcode}, Success: value.Value{V: res.Success}, Out: res.Out,
	}})
	if err != nil {
		c.env.Warn(fmt.Errorf("the return was not sent to the master: %w", err))
	}
	return nil
}
