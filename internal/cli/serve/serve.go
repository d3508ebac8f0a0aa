// Package serve is the common part of the commands of the two daemons: their options, their log,
// the start in the background, and the messages for a failed start. The daemons themselves are
// elsewhere.
package serve

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Flags are the options of a daemon.
func Flags() []urcli.Flag {
	return []urcli.Flag{
		&urcli.BoolFlag{Category: "Daemon", Name: "daemon", Aliases: []string{"d"}, Usage: "go into the background once it is ready"},
		&urcli.StringFlag{Category: "Daemon", Name: "user", Aliases: []string{"u"}, Usage: "run as `USER`"},
		&urcli.StringFlag{Category: "Daemon", Name: "pid-file", Usage: "write the process number to `FILE`"},
		&urcli.BoolFlag{Category: "Daemon", Name: "check", Usage: "tell everything that is wrong or strange about the configuration, and end: no daemon is started or touched"},
		&urcli.StringFlag{Category: "Daemon", Name: "profile", Usage: "write to standard output a profile of the daemon that runs, for 'go tool pprof', and end; `KIND` is allocs, goroutine, heap, or cpu, with cpu=60 for as many seconds instead of 10"},
	}
}

// Dir returns the configuration directory; "" is the default one, which may be missing.
func Dir(env *cli.Env, opts *urcli.Context) string {
	if dir := env.ConfigDir(opts); dir != cli.DefaultConfigDir {
		return dir
	}
	return ""
}

// Overrides returns the settings from the command line.
func Overrides(opts *urcli.Context) map[string]any {
	o := map[string]any{}
	for flag, key := range map[string]string{"user": "user", "pid-file": "pidfile"} {
		if opts.IsSet(flag) {
			o[key] = opts.String(flag)
		}
	}
	return o
}

// Begin switches to the user, opens the log and logs the notices. With -d it starts the daemon in
// the background instead; then done is true and this process must end.
func Begin(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg config.Common, notices []config.Notice) (log *logging.Log, done bool, err error) {
	if opts.Bool("daemon") {
		return nil, true, background(ctx, env)
	}
	if err := daemon.SwitchUser(cfg.User); err != nil {
		return nil, false, cli.Fail(cli.NoPermission, err)
	}
	if err := daemon.MakeDir(filepath.Dir(cfg.LogFile)); err != nil {
		return nil, false, Failed(err)
	}
	log, err = env.OpenLog(opts, cli.LogSettings{Level: cfg.LogLevel, File: cfg.LogFile, FileLevel: cfg.LogLevelLogfile, Format: cfg.LogFormat, FileRequired: true})
	if err != nil {
		return nil, false, Failed(err)
	}
	Tell(log.Logger, notices)
	return log, false, nil
}

// background starts the same command line without -d.
func background(ctx context.Context, env *cli.Env) error {
	args := slices.DeleteFunc(slices.Clone(env.Args), func(a string) bool { return a == "-d" || a == "--daemon" })
	if len(args) == len(env.Args) {
		return cli.Usagef("-d must stand alone, not together with other letters")
	}
	err := daemon.Detach(ctx, args, env.Stderr)
	var exit *daemon.ExitError
	if errors.As(err, &exit) {
		return cli.Exit(exit.Code) // it has printed the reason
	}
	return err
}

// Tell logs the notices about the configuration.
func Tell(log *slog.Logger, notices []config.Notice) {
	for _, n := range notices {
		log.Warn("configuration: " + n.String())
	}
}

// Reopen reopens a moved log file and applies the log levels of a reloaded configuration.
func Reopen(log *logging.Log, opts *urcli.Context, cfg config.Common) error {
	if !opts.IsSet("log-level") {
		console, err := logging.ParseLevel(cfg.LogLevel)
		if err != nil {
			return err
		}
		file := console
		if cfg.LogLevelLogfile != "" {
			if file, err = logging.ParseLevel(cfg.LogLevelLogfile); err != nil {
				return err
			}
		}
		if opts.Bool("quiet") {
			console = max(console, slog.LevelError)
		}
		log.SetLevels(console, file)
	}
	return log.Reopen()
}

// Run serves until ctx ends, with a small heap, and returns memory to the system whenever the
// daemon is idle.
func Run(ctx context.Context, d interface{ Run(context.Context) error }) error {
	daemon.Lean()
	defer daemon.FreeWhenIdle(ctx)()
	return d.Run(ctx)
}

// Failed adds an exit code to the error of a failed start and, if the error has no hint yet, a
// hint.
func Failed(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return salt.WithHint(err, "the disk is full: free some space and start again; nothing was changed")
	case errors.Is(err, pki.ErrUnsafe), errors.Is(err, fs.ErrPermission) && salt.Hint(err) != "":
		return cli.Fail(cli.NoPermission, err)
	case errors.Is(err, fs.ErrPermission):
		return cli.Fail(cli.NoPermission, salt.WithHint(err, deniedHint(os.Geteuid() == 0, daemon.Switched())))
	case errors.Is(err, config.ErrMistake), errors.Is(err, daemon.ErrNewer):
		return cli.Fail(cli.Usage, err) // a service manager does not restart after this exit code
	}
	return err
}

// deniedHint is the hint of a start that may not use a file. Root is not told to be root, nor is one that has started it
// as root and has set user.
func deniedHint(root, switched bool) string {
	const place = "set root_dir, or another directory for this, to a place that its user may write"
	switch {
	case root:
		return place + ". It is root already: the file system, the capabilities of a container, SELinux or AppArmor may be against it"
	case switched:
		return place + ", or give it to that user, whom the setting user names"
	}
	return "start it as root, or " + place
}
