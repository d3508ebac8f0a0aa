// Package route is how salt-call reaches the buses: through the minion's daemon, directly with
// the minion's key, or not at all. It also provides this minion to functions over that route.
//
// Package saltcall decides which function runs, and what happens to its return.
package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/cli/direct"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/socket"
	"github.com/brinebus/brine/internal/value"
)

// Route is one way to the buses.
type Route interface {
	// Return sends a function's return to the master.
	Return(ctx context.Context, r protocol.LocalReturn) error
	Close()

	complete(h *function.Host, s *module.Services) // adds what functions may use over this route
}

// Find prefers the daemon, since it has an outbox; without one it connects to the master
// itself. With local it connects to nothing.
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
	m, err := direct.Dial(ctx, env, cfg, wait, log)
	if err != nil {
		return nil, err
	}
	return toMaster{m}, nil
}

// nowhere is the route of --local.
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
	h.Data = data{h.Data, pillarOver(d.conn, d.wait, h.Log)}
	s.Events = events{conn: d.conn, toMaster: protocol.OpMaster, local: true}
	s.Facts = daemonFacts{d}
	s.Master = &daemonStatus{d}
	s.Scheduler = &daemonSchedule{d}
}

// connect adds what needs only a connection.
func connect(h *function.Host, s *module.Services, c *rpc.Conn) {
	conn := func() *rpc.Conn { return c }
	peers := peer.Client{Conn: func(string) *rpc.Conn { return c }}
	h.Publisher, s.Mine = peers, peers
	s.Files = fileserver.NewCache(h.CacheDir, peer.Files{Conn: conn})
	s.Push, s.Revoke = peer.Push(conn), peer.Revocation(conn)
}

// daemonFacts makes the daemon refresh what its next job sees. It implements module.Refresher.
type daemonFacts struct{ *throughDaemon }

// RefreshGrains implements module.Refresher.
func (d daemonFacts) RefreshGrains(ctx context.Context) error {
	return client.Error(d.conn.Ask(ctx, protocol.OpRefresh, protocol.Refresh{Grains: true}, nil))
}

// RefreshPillar implements module.Refresher.
func (d daemonFacts) RefreshPillar(ctx context.Context) error {
	return client.Error(d.conn.Ask(ctx, protocol.OpRefresh, protocol.Refresh{Pillar: true}, nil))
}

// daemonStatus reports the daemon's connection; it implements module.MasterConnection.
type daemonStatus struct{ *throughDaemon }

func (d *daemonStatus) status() (s protocol.Status, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.wait)
	defer cancel()
	err = d.conn.Ask(ctx, protocol.OpStatus, nil, &s)
	return s, err
}

// Masters implements module.MasterConnection.
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

// Ping implements module.MasterConnection.
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

// toMaster is our own connection to the master, with the minion's key.
type toMaster struct{ *direct.Master }

func (d toMaster) Return(ctx context.Context, r protocol.LocalReturn) error {
	return d.Ask(ctx, protocol.OpReturn, r, nil)
}

func (d toMaster) complete(h *function.Host, s *module.Services) {
	connect(h, s, d.Conn)
	h.Data = data{h.Data, func() protocol.Pillar { return d.Pillar }}
	s.Events = events{conn: d.Conn, toMaster: protocol.OpFire}
	s.Keys = directKeys{s.Keys, d.Connection.Master.SHA256()}
	s.Master = d.Master
}

// directKeys are the keys, with that of the connected master.
type directKeys struct {
	module.Keys
	master string
}

// MasterFingerprint implements module.Keys.
func (k directKeys) MasterFingerprint() string { return k.master }

// events implements module.EventBus over a connection.
type events struct {
	conn     *rpc.Conn
	toMaster string // the request for firing on the master's bus
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

// fireReturn fires a return on the master's bus, unchanged.
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

// marked marks a refusal for package module, which does not know the bus.
func marked(err error) error {
	if Refused(err) {
		return fmt.Errorf("%w: %w", function.ErrRefused, err)
	}
	return err
}

// Refused reports whether err is a refusal.
func Refused(err error) bool { return rpc.CodeOf(err) == rpc.Denied }
