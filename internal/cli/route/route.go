// Package route is how salt-call reaches the buses: through the minion's daemon, by itself
// with the minion's key, or not at all; and this minion as functions see it over that.
//
// Which function runs, and what becomes of its return, is for package saltcall.
package route

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/internal/version"
)

// Route is one way to the buses.
type Route interface {
	// Return tells the master what a function returned.
	Return(ctx context.Context, r protocol.LocalReturn) error
	Close()

	complete(h *function.Host, s *module.Services) // puts in what functions may use this way
}

// Find prefers the daemon, since it has an outbox; without one it goes to the master
// itself. With local nobody is asked.
func Find(ctx context.Context, env *cli.Env, cfg *config.Minion, local bool, wait time.Duration, log *slog.Logger) (Route, error) {
	if local || cfg.FileClient == "local" || cfg.MasterType == "disable" {
		return nowhere{}, nil
	}
	conn, err := client.Dial(env, cfg.SockDir, client.MinionSocket)
	if err == nil {
		return &throughDaemon{conn: conn, wait: wait}, nil
	}
	if !errors.Is(err, socket.ErrNobody) && cli.Code(err) != cli.Unavailable {
		return nil, err
	}
	return goDirect(ctx, env, cfg, wait, log)
}

// nowhere is --local.
type nowhere struct{}

func (nowhere) Return(context.Context, protocol.LocalReturn) error { return nil }
func (nowhere) complete(*function.Host, *module.Services)          {}
func (nowhere) Close()                                             {}

// throughDaemon uses the buses of the minion's daemon.
type throughDaemon struct {
	conn *rpc.Conn
	wait time.Duration
}

func (d *throughDaemon) Close() { d.conn.Close() }

func (d *throughDaemon) Return(ctx context.Context, r protocol.LocalReturn) error {
	return d.conn.Ask(ctx, protocol.OpReturn, r, nil)
}

func (d *throughDaemon) complete(h *function.Host, s *module.Services) {
	connect(h, s, d.conn)
	over := pillarOver(d.conn, d.wait, h.Log)
	h.Pillar = func() map[string]any { return dataOf(over()) }
	h.PillarErrors = func() []string { return over().Errors }
	s.Events = events{conn: d.conn, toMaster: protocol.OpMaster, local: true}
	s.Facts = daemonFacts{d}
	s.Master = &daemonStatus{d}
	s.Scheduler = &daemonSchedule{d}
}

// connect puts in what needs a connection and nothing else.
func connect(h *function.Host, s *module.Services, c *rpc.Conn) {
	conn := func() *rpc.Conn { return c }
	peers := peer.Client{Conn: func(string) *rpc.Conn { return c }}
	h.Publisher, s.Mine = peers, peers
	s.Files = fileserver.NewCache(h.CacheDir, peer.Files{Conn: conn})
	s.Push, s.Revoke = peer.Push(conn), peer.Revocation(conn)
}

// daemonFacts has the daemon find out anew what its next job is to see. It implements
// module.Refresher.
type daemonFacts struct{ *throughDaemon }

// RefreshGrains implements module.Refresher.
func (d daemonFacts) RefreshGrains(ctx context.Context) error {
	return client.Error(d.conn.Ask(ctx, protocol.OpRefresh, protocol.Refresh{Grains: true}, nil))
}

// RefreshPillar implements module.Refresher.
func (d daemonFacts) RefreshPillar(ctx context.Context) error {
	return client.Error(d.conn.Ask(ctx, protocol.OpRefresh, protocol.Refresh{Pillar: true}, nil))
}

// daemonStatus tells of the daemon's connection; it implements module.MasterLink.
type daemonStatus struct{ *throughDaemon }

func (d *daemonStatus) status() (s protocol.Status, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.wait)
	defer cancel()
	err = d.conn.Ask(ctx, protocol.OpStatus, nil, &s)
	return s, err
}

// Masters implements module.MasterLink.
func (d *daemonStatus) Masters() []string {
	s, _ := d.status() // without an answer there are none
	var names []string
	for _, m := range s.Masters {
		if m.Connected {
			names = append(names, m.Master)
		}
	}
	return names
}

// Ping implements module.MasterLink.
func (d *daemonStatus) Ping(_ context.Context, master string) error {
	s, err := d.status()
	switch {
	case err != nil:
		return err
	case !s.Connected:
		return fmt.Errorf("the minion's daemon is waiting for %s", s.Waiting)
	case master != "" && !slices.Contains(d.Masters(), master):
		return fmt.Errorf("the minion's daemon is not connected to %s", master)
	}
	return nil
}

// direct is a connection of our own to the master, with the minion's key.
type direct struct {
	link *upstream.Connection
	name string // of the master
	wait time.Duration

	pillar map[string]any
}

func goDirect(ctx context.Context, env *cli.Env, cfg *config.Minion, wait time.Duration, log *slog.Logger) (Route, error) {
	key, err := pki.LoadPrivate(filepath.Join(cfg.PKIDir, "minion.pem"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Fail(cli.Unavailable, salt.WithHint(fmt.Errorf("no minion is running here, and there is no minion key: %w", err),
			"start salt-minion once, use --local, or name the configuration directory with -c"))
	}
	if err != nil {
		return nil, cli.Fail(cli.NoPermission, err)
	}
	if len(cfg.Master) == 0 {
		return nil, cli.Fail(cli.Usage, salt.WithHint(errors.New("no minion is running here, and no master is configured"), "set master in the minion's configuration, or use --local"))
	}
	var failed error
	for _, master := range cfg.Master {
		w, err := goTo(ctx, env, cfg, key, master, wait, log)
		if err == nil {
			return w, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// goTo connects to one master.
func goTo(ctx context.Context, env *cli.Env, cfg *config.Minion, key *pki.PrivateKey, name string, wait time.Duration, log *slog.Logger) (Route, error) {
	defer env.Waiting(ctx, cli.Patience, func() string { return "the master at " + name })()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	o := upstream.FromConfig(cfg, key, name, log)
	o.Caller, o.Version, o.Timeout = true, version.Version(), wait
	l, err := upstream.Connect(ctx, o)
	if err != nil {
		return nil, directError(err)
	}
	if !l.Ready() {
		state := l.State()
		l.Close()
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(
			fmt.Errorf("Minion failed to authenticate with the master, has the minion key been accepted? (its state is %s, its fingerprint %s)", state, key.Public().SHA256()),
			"on the master: salt-key -a "+string(cfg.ID)))
	}
	d := &direct{link: l, name: name, wait: wait}
	if err := d.loadPillar(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return d, nil
}

// loadPillar asks the master for the pillar, before anything runs: a function must not be
// run with none where there is one that is broken.
func (d *direct) loadPillar(ctx context.Context) error {
	var p protocol.Pillar
	if err := d.link.Ask(ctx, protocol.OpPillar, nil, &p); err != nil {
		return fmt.Errorf("ask the master at %s for the pillar: %w", d.name, err)
	}
	if len(p.Errors) > 0 {
		return errors.New(strings.Join(p.Errors, "\n"))
	}
	d.pillar = dataOf(p)
	return nil
}

func directError(err error) error {
	switch {
	case errors.Is(err, upstream.ErrMasterKey), errors.Is(err, upstream.ErrSignature):
		return cli.Fail(cli.NoPermission, err)
	case errors.Is(err, upstream.ErrRejected), errors.Is(err, upstream.ErrDenied):
		return cli.Fail(cli.NoPermission, salt.WithHint(err, "delete the public key for this minion on the Salt Master and run this again"))
	case salt.Hint(err) != "": // a file of ours is not as it should be
		return cli.Fail(cli.NoPermission, err)
	}
	return cli.Fail(cli.Unavailable, salt.WithHint(err, "start salt-minion, whose outbox keeps what is for the master, or use --local"))
}

func (d *direct) Close() { d.link.Close() }

func (d *direct) Return(ctx context.Context, r protocol.LocalReturn) error {
	return d.link.Ask(ctx, protocol.OpReturn, r, nil)
}

func (d *direct) complete(h *function.Host, s *module.Services) {
	connect(h, s, d.link.Conn)
	h.Pillar = func() map[string]any { return d.pillar }
	s.Events = events{conn: d.link.Conn, toMaster: protocol.OpFire}
	s.Keys = directKeys{s.Keys, d.link.Master.SHA256()}
	s.Master = d
}

// directKeys are the keys with that of the master which the connection goes to.
type directKeys struct {
	module.Keys
	master string
}

// MasterFingerprint implements module.Keys.
func (k directKeys) MasterFingerprint() string { return k.master }

// Masters implements module.MasterLink.
func (d *direct) Masters() []string {
	if !d.link.NC.IsConnected() {
		return nil
	}
	return []string{d.name}
}

// Ping implements module.MasterLink.
func (d *direct) Ping(ctx context.Context, master string) error {
	if master != "" && master != d.name {
		return fmt.Errorf("the master in use is %s", d.name)
	}
	return d.link.NC.FlushWithContext(ctx)
}

// events implements module.EventBus over a connection.
type events struct {
	conn     *rpc.Conn
	toMaster string // the request that fires on the master's bus
	local    bool   // there is a minion's bus
}

// Fire implements module.EventBus.
func (e events) Fire(ctx context.Context, tag string, data any) error {
	if !e.local {
		return errors.New("there is no minion's bus here: its daemon is not running")
	}
	raw, err := value.Encode(data)
	if err != nil {
		return err
	}
	return marked(e.conn.Ask(ctx, protocol.OpFire, protocol.FireOne(bus.NewNonce(), tag, raw), nil))
}

// fireReturn puts a return on the master's bus, as it is.
func (e events) fireReturn(ctx context.Context, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return err
	}
	return e.conn.Ask(ctx, e.toMaster, protocol.FireOne(bus.NewNonce(), tag, raw), nil)
}

// FireMaster implements module.EventBus.
func (e events) FireMaster(ctx context.Context, list ...module.Event) (module.Outcomes, error) {
	outcomes := module.Outcomes{}
	for _, one := range list {
		raw, err := value.Encode(one.Data)
		if err != nil {
			return nil, err
		}
		f := protocol.FireOne(bus.NewNonce(), one.Tag, raw)
		f.Form = protocol.FormSingle
		if one.Pretag != "" {
			f.Pretag = &one.Pretag
		}
		var fired protocol.Fired
		if err := e.conn.Ask(ctx, e.toMaster, f, &fired); err != nil {
			return nil, marked(err)
		}
		if len(fired.Masters) == 0 {
			outcomes.Add("", fired.Outcome == protocol.Stored)
		}
		for _, m := range fired.Masters {
			outcomes.Add(m.Master, m.Outcome == protocol.Stored)
		}
	}
	return outcomes, nil
}

// marked marks what is not permitted for package module, which does not know the
// bus.
func marked(err error) error {
	if Refused(err) {
		return fmt.Errorf("%w: %w", function.ErrRefused, err)
	}
	return err
}

// Refused says whether err is that of something that is not permitted.
func Refused(err error) bool { return rpc.CodeOf(err) == rpc.Denied }
