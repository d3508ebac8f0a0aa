// Package client is the way of the command line tools to their daemon: the
// socket, and what its errors mean for a person and for the exit code.
package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// The files in sock_dir behind which the daemons listen.
const (
	MasterSocket = "master.sock"
	MinionSocket = "minion.sock"
)

// Dial connects to the daemon with this socket in dir. It is bounded by package
// bus, and says what it waits for.
func Dial(env *cli.Env, dir, name string) (*rpc.Conn, error) {
	path := filepath.Join(dir, name)
	defer env.Waiting(context.Background(), cli.Patience, func() string { return "the daemon at " + path })()
	c, err := rpc.DialBySudo(path, env.Getenv("SUDO_USER"))
	if err != nil {
		return nil, dialError(err, path, name)
	}
	return c, nil
}

// dialMaster connects to the master: to that of the credentials, where the options name some,
// or else to that of this machine.
func dialMaster(env *cli.Env, opts *urcli.Context, cfg *config.Master) (*rpc.Conn, error) {
	dir := opts.String("creds")
	if dir == "" {
		env.Debug(opts, "connecting to the master", "socket", filepath.Join(cfg.SockDir, MasterSocket))
		return Dial(env, cfg.SockDir, MasterSocket)
	}
	env.Debug(opts, "connecting to the master", "credentials", dir)
	defer env.Waiting(context.Background(), cli.Patience, func() string { return "the master of " + dir })()
	c, err := rpc.DialCredentials("", dir)
	switch {
	case errors.Is(err, rpc.ErrServerKey):
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(err, "its key has changed, or it is another machine: have new credentials made, once you know which"))
	case errors.Is(err, rpc.ErrRefused):
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(err, "the credentials have expired or were revoked: 'salt-event creds --list' on the master shows which are good"))
	case errors.Is(err, fs.ErrPermission):
		return nil, cli.Fail(cli.NoPermission, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, cli.Fail(cli.Usage, salt.WithHint(err, "'salt-event creds' on the master makes credentials"))
	case err != nil:
		return nil, cli.Fail(cli.Unavailable, err)
	}
	return c, nil
}

// NobodyListens says of an error of Dial that there is no daemon.
func NobodyListens(err error) bool { return errors.Is(err, socket.ErrNobody) }

func dialError(err error, path, name string) error {
	program := "salt-master"
	if name == MinionSocket {
		program = "salt-minion"
	}
	switch {
	case errors.Is(err, socket.ErrNobody):
		who := "master"
		if name == MinionSocket {
			who = "minion"
		}
		return cli.Fail(cli.Unavailable, salt.WithHint(
			fmt.Errorf("The salt %[1]s could not be contacted. Is %[1]s running? Nobody listens on %[2]s%.0[3]w", who, path, err),
			"start "+program+", or name its configuration directory with -c"))
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

// closed is the directory on the way to path that does not let this user through.
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

// Error gives an error of the daemon its exit code, unless it has one.
func Error(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || cli.Code(err) != cli.Failed {
		return err
	}
	if errors.Is(err, rpc.ErrLost) {
		return cli.Fail(cli.Unavailable, salt.WithHint(err, "its log says why it ended; a job that was started goes on, see 'salt-run jobs.list_jobs'"))
	}
	switch rpc.CodeOf(err) {
	case rpc.Denied:
		return cli.Fail(cli.NoPermission, err)
	case rpc.Usage:
		return cli.Fail(cli.Usage, err)
	case rpc.NoMatch:
		return cli.Fail(cli.NoMatch, err)
	case rpc.Unavailable, rpc.Busy:
		return cli.Fail(cli.Unavailable, err)
	}
	return cli.Fail(cli.Failed, err)
}

// Failed is the error of a runner or a wheel function that has failed.
func Failed(res protocol.RunResult) error {
	code := cli.Failed
	if res.Retcode == protocol.RunRefused {
		code = cli.NoPermission
	}
	return cli.Fail(code, salt.WithHint(errors.New(res.Error), res.Hint))
}

// dir is the configuration directory; "" is the default one, which may be missing.
func dir(env *cli.Env, opts *urcli.Context) string {
	if d := env.ConfigDir(opts); d != cli.DefaultConfigDir {
		return d
	}
	return ""
}

// MasterConfig reads the master's configuration for a tool, which needs little of
// it: what the user may not read is taken from the defaults.
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

// configError gives a configuration that this user may not read its exit code.
func configError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return cli.Fail(cli.NoPermission, err)
	}
	return err
}
