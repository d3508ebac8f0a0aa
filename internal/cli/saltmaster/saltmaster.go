// Package saltmaster is the command salt-master: it reads the configuration and
// runs the master's daemon, which is package master.
package saltmaster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/cli/monitor"
	"github.com/brinebus/brine/internal/cli/serve"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/membership"
	"github.com/brinebus/brine/internal/metrics"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/settings"
	"github.com/brinebus/brine/internal/version"
)

// Run runs salt-master.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"[options]"},
		Summary:  "The master: accepts minions by their keys, runs jobs on them and keeps the journal of events.",
		Examples: []string{"salt-master", "salt-master -l info", "salt-master -c /srv/test/etc -d", "salt-master --profile heap >heap.pprof", "salt-master --restore /var/backups/salt/2026-11-26"},
		Flags:    append(serve.Flags(), append(restoreFlags(), &urcli.BoolFlag{Category: "Store", Name: "nats-config", Usage: "print what the configuration of nats_servers needs, as salt-run nats.config does while the master runs, and end"})...),
		Daemon:   true,
		Run:      run,
	})
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	if err := checkStoreFlags(opts); err != nil {
		return err
	}
	load := func() (*config.Master, []config.Notice, error) {
		o := config.Options{ConfigDir: serve.Dir(env, opts), Overrides: serve.Overrides(opts), CheckOwner: true, Strict: true}
		cfg, notices, err := o.InspectMaster()
		if cfg != nil {
			err = config.Mistake(config.Join(err, settings.Check(cfg), config.Mistake(monitor.Check(&cfg.Common)), config.Mistake(membership.CheckMirror(cfg)), config.Mistake(membership.Check(cfg)), config.Mistake(master.CheckNATS(cfg))))
		}
		return cfg, notices, err
	}
	cfg, notices, err := load()
	if opts.Bool("check") {
		here, mistake := here(ctx, cfg)
		strange := append(lint(ctx, cfg), here...)
		if cfg != nil {
			strange = append(strange, cfg.Strange...)
		}
		unseen, bad := keys(cfg) // from here on as the user of the daemon
		unread, refused := store(ctx, cfg)
		return serve.Check(env, serve.Checked{Err: config.Mistake(config.Join(err, mistake, bad, refused)), Notices: notices, Warnings: slices.Concat(strange, unseen, unread)})
	}
	if err != nil {
		return serve.Failed(err)
	}
	if opts.Bool("nats-config") {
		if err := daemon.SwitchUser(cfg.User); err != nil { // a secret that it makes is for the master
			return cli.Fail(cli.NoPermission, err)
		}
		text, err := master.ServerConfig(cfg, func(file string) {
			env.Note("a new seed for nats_servers was made: %s. These servers do not know it yet: %s", file, master.NewSeedHint)
		})
		if err == nil {
			_, err = fmt.Fprint(env.Stdout, text)
		}
		return serve.Failed(err)
	}
	if opts.IsSet("profile") {
		return serve.Profile(ctx, env, opts, cfg.SockDir, client.MasterSocket)
	}
	log, done, err := serve.Begin(ctx, env, opts, cfg.Common, notices)
	if err != nil || done {
		return err
	}
	defer log.Close()
	if opts.IsSet("restore") {
		return serve.Failed(restore(ctx, env, opts, cfg, log.Logger))
	}
	if opts.Bool("repair") {
		return serve.Failed(repair(ctx, env, opts, cfg, log.Logger))
	}
	defer monitor.DumpAtSignal(cfg.CacheDir, log.Logger)()
	listener, err := monitor.Open(&cfg.Common)
	if err != nil {
		return serve.Failed(err)
	}
	defer listener.Close()
	latency, start := metrics.NewReturnLatency(), monitor.NewStart("master", version.Version())
	stop := listener.Serve(ctx, start, latency, log.Logger)
	defer stop()
	m, err := master.New(ctx, master.Options{
		Config: cfg, Version: version.Version(), Log: log.Logger, Latency: latency, Stores: stores{cfg.PKIDir, log.Logger}, Starting: start.Waits,
		Reload: func() (*config.Master, error) {
			cfg, notices, err := load()
			serve.Tell(log.Logger, notices)
			if err == nil {
				err = serve.Reopen(log, opts, cfg.Common)
			}
			return cfg, err
		},
	})
	if err != nil && ctx.Err() != nil {
		log.Info("the master was stopped before it was ready", "reason", err.Error())
		return nil
	}
	if errors.Is(err, membership.ErrHosted) {
		return cli.Fail(cli.Unavailable, err)
	}
	if err != nil {
		return serve.Failed(err)
	}
	watch := watched{master.NewMonitor(m)}
	defer watch.Close()
	defer stop() // before watch is closed
	start.End(watch)
	return serve.Run(ctx, m)
}

// here is what is wrong about this machine as a member of its cluster. That it has no address of a member may
// pass, and a start waits for it.
func here(ctx context.Context, cfg *config.Master) (strange []config.Place, mistake error) {
	if cfg == nil {
		return nil, nil
	}
	err := membership.CheckHere(ctx, cfg)
	if errors.Is(err, membership.ErrNotHere) {
		return []config.Place{{Text: fmt.Sprintf("%v: a start waits until one has. If none will, %s", err, salt.Hint(err))}}, nil
	}
	return nil, config.Mistake(err)
}

// keys is what is wrong with the master's own key, its signing pair or its signature, for which a start would fail. It
// looks as the user that the daemon runs as; where this process cannot, the files may be right.
func keys(cfg *config.Master) (strange []config.Place, mistake error) {
	if cfg == nil {
		return nil, nil
	}
	asDaemon := cfg.User != "" || os.Geteuid() == 0
	if err := daemon.SwitchUser(cfg.User); err != nil {
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) || os.Geteuid() == 0 {
			return nil, config.Mistake(cli.Fail(cli.NoPermission, err)) // as a start ends, see serve.Begin
		}
		return []config.Place{{Text: fmt.Sprintf("the keys of the master were not examined: %v", err)}}, nil
	}
	strange, bad := readable(config.Mistakes(master.CheckKeys(cfg)), asDaemon)
	if text := master.MissingSigningPair(cfg); text != "" {
		strange = append(strange, config.Place{Text: text})
	}
	return strange, config.Mistake(errors.Join(bad...))
}

// store is why a start would refuse the data that this master has. A daemon may run, and nothing is opened for writing. Where
// the settings do not say which member this is, a start ends or waits before it looks.
func store(ctx context.Context, cfg *config.Master) (unseen []config.Place, mistake error) {
	if cfg == nil || membership.Check(cfg) != nil {
		return nil, nil
	}
	p, err := membership.PlaceIn(ctx, cfg)
	if err != nil {
		return nil, nil //nolint:nilerr // here tells it
	}
	unseen, bad := readable(config.Mistakes(lookAt(cfg.CacheDir, p)), cfg.User != "" || os.Geteuid() == 0)
	return unseen, config.Mistake(errors.Join(bad...))
}

// readable divides what is wrong with the keys or the store: a file that another user than the daemon's cannot read may be right.
func readable(found []error, asDaemon bool) (unseen []config.Place, bad []error) {
	for _, err := range found {
		if !asDaemon && errors.Is(err, fs.ErrPermission) {
			unseen = append(unseen, config.Place{Text: fmt.Sprintf("not examined: %v", err)})
			continue
		}
		bad = append(bad, err)
	}
	return unseen, bad
}

// lint is what is strange about the access rules.
func lint(ctx context.Context, cfg *config.Master) []config.Place {
	if cfg == nil {
		return nil
	}
	var list []config.Place
	for _, f := range settings.Lint(ctx, cfg) {
		p := config.Place{Where: f.Where, Column: f.Column, Key: f.Key, Text: f.Text}
		if f.Dead {
			p.Text = "it has no effect: " + p.Text
		}
		list = append(list, p)
	}
	return list
}
