// Package saltapi is the command salt-api: it reads rest_cherrypy and serves HTTP with package
// netapi. It runs as its own user, without any rights.
package saltapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	cliclient "github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/cli/serve"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/netapi"
	"github.com/brinebus/brine/internal/salt"
)

// Run runs salt-api.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"[options]"},
		Summary:  "Serve HTTP for browsers and programs: each request is that of the login that it shows, and the master decides about it.",
		Examples: []string{"salt-api", "salt-api -l info", "salt-api -c /srv/test/etc -d"},
		Flags:    serve.Flags(),
		Daemon:   true,
		Run:      run,
	})
}

// load reads the configuration of the master, as far as this user may.
func load(env *cli.Env, opts *urcli.Context) (*config.Master, settings, []config.Notice, error) {
	o := config.Options{ConfigDir: serve.Dir(env, opts), AllowUnreadable: true}
	cfg, notices, err := o.Master()
	if err != nil {
		return nil, settings{}, notices, err
	}
	s, notes, err := read(cfg)
	for _, n := range notes {
		notices = append(notices, config.Notice{Key: "rest_cherrypy", Text: n + " means nothing here"})
	}
	return cfg, s, notices, err
}

func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	cfg, s, notices, err := load(env, opts)
	if opts.Bool("check") {
		return serve.Check(env, serve.Checked{Err: err, Notices: notices})
	}
	if err != nil {
		return serve.Failed(err)
	}
	secure, err := s.tls()
	if err != nil {
		return err
	}
	common := cfg.Common
	common.LogFile, common.PIDFile, common.User = cfg.APILogFile, cfg.APIPidfile, opts.String("user")
	if opts.IsSet("pid-file") {
		common.PIDFile = opts.String("pid-file")
	}
	if opts.Bool("daemon") {
		_, _, err := serve.Begin(ctx, env, opts, common, nil)
		return err
	}
	if common.User != "" {
		if err := daemon.SwitchUser(common.User); err != nil {
			return cli.Fail(cli.NoPermission, err)
		}
	}
	log, err := env.OpenLog(opts, cli.LogSettings{Level: cfg.LogLevel, File: common.LogFile, FileLevel: cfg.LogLevelLogfile, Format: cfg.LogFormat})
	if err != nil {
		return err
	}
	defer log.Close()
	s.api.Log = log.Logger
	s.api.Dial = dialer(cfg)
	server, err := netapi.New(s.api)
	if err != nil {
		return serve.Failed(err)
	}
	defer server.Close()
	return s.serve(ctx, env, server, common.PIDFile, secure)
}

// dialer connects to the master: the local one or, with credentials, the one that they are for. The
// credentials are read each time, so that they can be replaced.
func dialer(cfg *config.Master) func(context.Context) (*client.Conn, error) {
	if cfg.APICreds != "" {
		return func(ctx context.Context) (*client.Conn, error) {
			return client.Connect(ctx, "", client.Credentials(cfg.APICreds))
		}
	}
	socket := filepath.Join(cfg.SockDir, cliclient.MasterSocket)
	return func(ctx context.Context) (*client.Conn, error) { return client.Connect(ctx, socket) }
}

// serve listens, notifies that it is ready, and serves until ctx ends.
func (s *settings) serve(ctx context.Context, env *cli.Env, server *netapi.Server, pidFile string, secure *tls.Config) error {
	address := net.JoinHostPort(s.host, strconv.Itoa(s.port))
	l, err := net.Listen("tcp", address)
	if err != nil {
		return cli.Fail(cli.Failed, salt.WithHint(fmt.Errorf("listen on %s: %w", address, err), "rest_cherrypy names host and port"))
	}
	defer l.Close()
	remove, err := daemon.PIDFile(pidFile)
	if err != nil {
		env.Warn(fmt.Errorf("%w; going on without", err))
		remove = func() {}
	}
	defer remove()
	if len(s.api.Clients) == 0 {
		env.Warn(errors.New("only logins are possible: netapi_enable_clients is empty"))
	}
	s.api.Log.Info("listening", "address", l.Addr().String(), "tls", secure != nil)
	if err := errors.Join(daemon.Notify("READY=1"), daemon.Ready()); err != nil {
		s.api.Log.Warn("cannot notify the service manager that salt-api is ready", "err", err)
	}
	return server.Serve(ctx, l, secure)
}

// tls reads the certificate. Without one it serves nothing, unless disable_ssl allows passwords to
// cross the network unencrypted.
func (s *settings) tls() (*tls.Config, error) {
	if s.plain {
		return nil, nil
	}
	if s.cert == "" || s.key == "" {
		return nil, cli.Fail(cli.Usage, salt.WithHint(errors.New("rest_cherrypy names no certificate (ssl_crt and ssl_key)"),
			"make one: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -keyout /etc/salt/pki/api.key -out /etc/salt/pki/api.crt "+
				"-subj /CN=$(hostname -f) -addext subjectAltName=DNS:$(hostname -f); chown salt-api /etc/salt/pki/api.key; or disable_ssl: true behind a proxy that has one"))
	}
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return nil, cli.Fail(cli.NoPermission, fmt.Errorf("read the certificate of rest_cherrypy: %w", err))
	}
	if s.chain != "" {
		chain, err := readChain(s.chain)
		if err != nil {
			return nil, err
		}
		pair.Certificate = slices.Concat(pair.Certificate, chain)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}
