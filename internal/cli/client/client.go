// Package client connects the command line tools to their daemon: through the socket. It also
// converts the daemon's errors to messages for people and to exit codes.
package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// The socket files of the daemons in sock_dir.
const (
	MasterSocket = "master.sock"
	MinionSocket = "minion.sock"
)

// Local connects to the daemon with this socket in dir, and prints what it waits for.
func Local(ctx context.Context, env *cli.Env, dir, name string) (*brine.Conn, error) {
	path := filepath.Join(dir, name)
	defer env.Waiting(ctx, cli.Patience, func() string { return "the daemon at " + path })()
	c, err := brine.Connect(ctx, "unix://"+path, brine.Sudo(env.Getenv("SUDO_USER")))
	if err != nil && ctx.Err() == nil {
		err = dialError(err, path, name)
	}
	return c, err
}

// Dial is Local for requests that package client does not have: those of the minion's own machine,
// and profiles.
func Dial(env *cli.Env, dir, name string) (*rpc.Conn, error) {
	path := filepath.Join(dir, name)
	defer env.Waiting(context.Background(), cli.Patience, func() string { return "the daemon at " + path })()
	c, err := rpc.DialBySudo(path, env.Getenv("SUDO_USER"))
	if err != nil {
		return nil, dialError(err, path, name)
	}
	return c, nil
}

// dialMaster connects to the master: to that of the credentials if the options name some, otherwise
// to the local one.
func dialMaster(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master) (*brine.Conn, error) {
	dir := opts.String("creds")
	if dir == "" {
		env.Debug(opts, "connecting to the master", "socket", filepath.Join(cfg.SockDir, MasterSocket))
		c, err := Local(ctx, env, cfg.SockDir, MasterSocket)
		return c, unready(err, cfg)
	}
	env.Debug(opts, "connecting to the master", "credentials", dir)
	defer env.Waiting(ctx, cli.Patience, func() string { return "the master of " + dir })()
	c, err := brine.Connect(ctx, "", brine.Credentials(dir))
	switch {
	case err == nil, ctx.Err() != nil:
		return c, err
	case errors.Is(err, brine.ErrServer):
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(err, "its key has changed, or it is another machine: have new credentials made, once you know which"))
	case errors.Is(err, brine.ErrRefused):
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(err, "the credentials have expired or were revoked: 'salt-event creds --list' on the master shows which are good"))
	case errors.Is(err, fs.ErrPermission):
		return nil, cli.Fail(cli.NoPermission, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, cli.Fail(cli.Usage, salt.WithHint(err, "'salt-event creds' on the master makes credentials"))
	}
	return nil, cli.Fail(cli.Unavailable, err)
}

// NobodyListens reports whether an error of Dial means that there is no daemon.
func NobodyListens(err error) bool { return errors.Is(err, socket.ErrNobody) }

func dialError(err error, path, name string) error {
	who, program, waits := "master", "salt-master", "; one that runs opens it when it need not wait for other masters any more, see its log"
	if name == MinionSocket {
		who, program, waits = "minion", "salt-minion", ""
	}
	switch {
	case errors.Is(err, socket.ErrNobody):
		return cli.Fail(cli.Unavailable, salt.WithHint(
			fmt.Errorf("The salt %[1]s could not be contacted. Is %[1]s running? Nobody listens on %[2]s%.0[3]w", who, path, err),
			startIt(program)+waits))
	case errors.Is(err, fs.ErrPermission):
		return cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("connect to the daemon at %s: %w", path, fs.ErrPermission),
			"the directories on the way to the socket must let you through (sock_dir); "+closed(path)+" does not"))
	case errors.Is(err, rpc.ErrRefused) && socket.Namespaced():
		return cli.Fail(cli.NoPermission, salt.WithHint(errors.New(program+" refused the connection: this process is in a user namespace, where users have other numbers"),
			"run it outside of the namespace (unshare, a container), as the user that it is there"))
	case errors.Is(err, rpc.ErrRefused):
		return cli.Fail(cli.NoPermission, salt.WithHint(errors.New(program+" refused the connection: its bus is for root and its own user"),
			"use sudo, or run it as the user of "+program))
	}
	return cli.Fail(cli.Unavailable, salt.WithHint(err, program+" is there and does not answer: its log may say why; restart it if it hangs"))
}

// unready is the error where nobody listens, though the master of this configuration may run: it has no socket
// while it waits for others.
func unready(err error, cfg *config.Master) error {
	if !NobodyListens(err) {
		return err
	}
	pid, runs, look := daemon.Holder(cfg.CacheDir)
	switch {
	case runs:
		return cli.Fail(cli.Unavailable, salt.WithHint(fmt.Errorf("The salt master could not be contacted: salt-master (process %d) runs and is not ready%.0w", pid, err),
			"it opens "+MasterSocket+" when it is ready. It may wait for other masters: its log says for which"))
	case look == nil:
		return cli.Fail(cli.Unavailable, salt.WithHint(err, startIt("salt-master")))
	}
	return err // who may not enter its directory does not know whether it runs
}

// startIt is what to do where no daemon runs.
func startIt(program string) string {
	return "start " + program + ", or name its configuration directory with -c"
}

// closed returns the directory above path that this user may not enter.
func closed(path string) string {
	dir := filepath.Dir(path)
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// Error adds an exit code to an error of the daemon, unless it has one.
func Error(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || cli.Code(err) != cli.Failed {
		return err
	}
	if errors.Is(err, rpc.ErrLost) {
		return cli.Fail(cli.Unavailable, salt.WithHint(err, "its log says why it ended; a job that was started goes on: 'salt-run jobs.list_jobs' shows it, in a cluster at another member"))
	}
	switch code := rpc.CodeOf(err); {
	case code == rpc.Denied, errors.Is(err, brine.ErrDenied):
		return cli.Fail(cli.NoPermission, err)
	case code == rpc.Usage, errors.Is(err, brine.ErrUsage):
		return cli.Fail(cli.Usage, err)
	case code == rpc.NoMatch:
		return cli.Fail(cli.NoMatch, err)
	case code == rpc.Unavailable, code == rpc.Busy, errors.Is(err, brine.ErrUnavailable): // also of a runner
		return cli.Fail(cli.Unavailable, err)
	}
	return cli.Fail(cli.Failed, err)
}

// answered reports whether err is the daemon's answer, or the end of a connection or of a wait for
// it, and not of an attempt to connect.
func answered(err error) bool {
	var answer *rpc.Error
	return errors.As(err, &answer) || errors.Is(err, rpc.ErrLost) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// dir returns the configuration directory; "" is the default one, which may be missing.
func dir(env *cli.Env, opts *urcli.Context) string {
	if d := env.ConfigDir(opts); d != cli.DefaultConfigDir {
		return d
	}
	return ""
}

// MasterConfig reads the master's configuration for a tool, which needs little of it: for files
// that the user may not read it uses the defaults.
func MasterConfig(env *cli.Env, opts *urcli.Context) (*config.Master, error) {
	cfg, _, err := config.Options{ConfigDir: dir(env, opts), AllowUnreadable: true}.Master()
	env.Debug(opts, "the configuration of the master is read", "dir", env.ConfigDir(opts), "err", err)
	return cfg, configError(err)
}

// MinionConfig reads the minion's configuration for a tool.
func MinionConfig(env *cli.Env, opts *urcli.Context, overrides map[string]any) (*config.Minion, error) {
	cfg, _, err := config.Options{ConfigDir: dir(env, opts), AllowUnreadable: true, Overrides: overrides}.Minion()
	env.Debug(opts, "the configuration of the minion is read", "dir", env.ConfigDir(opts), "err", err)
	return cfg, configError(err)
}

// configError adds an exit code to the error for a configuration that this user may not read, or
// that is not where the command line says.
func configError(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return cli.Fail(cli.NoPermission, err)
	case errors.Is(err, fs.ErrNotExist):
		return cli.Fail(cli.Usage, err)
	}
	return err
}
