// Package saltminion is the command salt-minion: it reads the configuration and
// runs the minion's daemon, which is package minion.
package saltminion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/cli/monitor"
	"github.com/brinebus/brine/internal/cli/serve"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/version"
)

// Run runs salt-minion.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"[options]"},
		Summary:  "The minion: connects to its master, runs what the master asks for, and has a small event bus of its own.",
		Examples: []string{"salt-minion", "salt-minion -l info", "salt-minion -c /srv/test/etc -d", "salt-minion --profile heap >heap.pprof"},
		Flags:    serve.Flags(),
		Daemon:   true,
		Run:      run,
	})
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	o := config.Options{ConfigDir: serve.Dir(env, opts), Overrides: serve.Overrides(opts), CheckOwner: true, Strict: true}
	inspect := func() (*config.Minion, []config.Notice, error) {
		cfg, notices, err := o.InspectMinion()
		if cfg != nil {
			err = config.Mistake(config.Join(err, minion.Check(cfg), config.Mistake(monitor.Check(&cfg.Common))))
		}
		return cfg, notices, err
	}
	if opts.Bool("check") {
		cfg, notices, err := inspect()
		strange, bad := more(cfg)
		return serve.Check(env, serve.Checked{Err: config.Mistake(config.Join(err, bad)), Notices: notices, Warnings: append(lint(cfg), strange...)})
	}
	if opts.IsSet("profile") {
		cfg, _, err := inspect()
		if err != nil {
			return serve.Failed(err)
		}
		return serve.Profile(ctx, env, opts, cfg.SockDir, client.MinionSocket)
	}
	load := func() (*config.Minion, []config.Notice, error) {
		cfg, notices, err := inspect()
		if err != nil {
			return nil, notices, err
		}
		more, err := o.ResolveID(cfg)
		return cfg, append(notices, more...), err
	}
	cfg, notices, err := load()
	if err != nil {
		return serve.Failed(err)
	}
	log, done, err := serve.Begin(ctx, env, opts, cfg.Common, notices)
	if err != nil || done {
		return err
	}
	defer log.Close()
	defer monitor.DumpAtSignal(cfg.CacheDir, log.Logger)()
	for _, p := range lint(cfg) {
		log.Warn("a setting has no effect", "setting", p.Key, "why", p.Text)
	}
	listener, err := monitor.Open(&cfg.Common)
	if err != nil {
		return serve.Failed(err)
	}
	defer listener.Close()
	start := monitor.NewStart("minion", version.Version())
	stop := listener.Serve(ctx, start, nil, log.Logger)
	defer stop()
	m, err := minion.New(ctx, minion.Options{
		Config: cfg, Version: version.Version(), Log: log.Logger, Service: daemon.Supervised(),
		Reload: func() (*config.Minion, error) {
			cfg, notices, err := load()
			serve.Tell(log.Logger, notices)
			if err == nil {
				err = serve.Reopen(log, opts, cfg.Common)
			}
			return cfg, err
		},
	})
	if err != nil {
		return serve.Failed(err)
	}
	watch := watched{minion.NewMonitor(m)}
	defer watch.Close()
	defer stop() // before watch is closed
	start.End(watch)
	return refusal(ctx, log, serve.Run(ctx, m))
}

// lint is what is strange about the settings.
func lint(cfg *config.Minion) []config.Place {
	if cfg == nil {
		return nil
	}
	return minion.Lint(cfg)
}

// more is what only a check tells: settings that are probably not meant as they are, and a key with which the minion
// would run and reach no master.
func more(cfg *config.Minion) (strange []config.Place, mistake error) {
	if cfg == nil {
		return nil, nil
	}
	bad := upstream.CheckKey(cfg)
	if errors.Is(bad, fs.ErrPermission) {
		return append(cfg.Strange, config.Place{Text: fmt.Sprintf("not examined: %v", bad)}), nil
	}
	return cfg.Strange, config.Mistake(bad)
}

// refusal says in Salt's words, and in ours, why the minion ends.
func refusal(ctx context.Context, log *logging.Log, err error) error {
	switch {
	case errors.Is(err, upstream.ErrRejected), errors.Is(err, upstream.ErrDenied):
		log.Log(ctx, logging.LevelCritical, "The Salt Master has rejected this minion's public key!")
		log.Log(ctx, logging.LevelCritical, "To repair this issue, delete the public key for this minion on the Salt Master and restart this minion.")
		log.Log(ctx, logging.LevelCritical, "Or restart the Salt Master in open mode to clean out the keys. The Salt Minion will now exit.")
	case errors.Is(err, upstream.ErrMasterKey), errors.Is(err, upstream.ErrSignature):
		// The daemon has said so.
	case errors.Is(err, upstream.ErrNoAddress):
		return cli.Fail(cli.Unavailable, err)
	default:
		return err
	}
	return cli.Fail(cli.NoPermission, err)
}
