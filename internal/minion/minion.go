// Package minion is the minion's daemon: one identity, a small bus of its own for
// the scripts of its machine, a connection to its master, and the functions that
// it runs for that master.
//
// Package module has the functions, package function runs them; package job verifies jobs.
package minion

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/beacon"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/executor"
	"github.com/brinebus/brine/internal/forwarder"
	"github.com/brinebus/brine/internal/host"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/localapi"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/scheduler"
	"github.com/brinebus/brine/internal/upstream"
)

// SocketName is the file in sock_dir through which local tools connect to the minion.
const SocketName = "minion.sock"

// Options are what a minion is started with.
type Options struct {
	Config  *config.Minion
	Version string
	Log     *slog.Logger
	// Service means that the minion runs as a service, where nobody sees it end: it does not
	// end when a master is refused, or refuses it.
	Service bool
	// Reload reads the configuration again, after SIGHUP, and applies its log levels.
	Reload func() (*config.Minion, error)
	// SelfCheck is the pause between two checks whether the daemon serves; 0 is the default.
	SelfCheck time.Duration
}

// Minion is a minion's daemon. New makes it, Run serves.
type Minion struct {
	cfg       *config.Minion
	version   string
	log       *slog.Logger
	broker    *broker.Broker
	serving   chan struct{} // closed when requests are served; connections wait for it
	server    *rpc.Server
	events    *eventbus.Bus
	journal   *journal.Journal
	facts     *host.Facts
	host      *host.Host
	executor  *executor.Executor
	scheduler *scheduler.Scheduler
	beacons   *beacon.Manager
	forwarder *forwarder.Forwarder
	local     *localapi.API
	reload    func() (*config.Minion, error)
	service   bool                          // refusals do not end it
	taken     atomic.Pointer[config.Minion] // the latest configuration that was applied
	masters   *upstream.Uplinks             // none with master_type disable
	every     time.Duration                 // pause between two self-checks
	boxes     *outbox.Boxes                 // one for each uplink
	mines     []*executor.Mine              // likewise
	undo      []func()
	ctx       context.Context
	cancel    context.CancelCauseFunc
	wg        sync.WaitGroup
}

// New checks everything, takes the lock on the data, and opens the minion's own bus. After an
// error nothing is left open.
func New(ctx context.Context, o Options) (*Minion, error) {
	m := &Minion{cfg: o.Config, version: o.Version, log: o.Log, reload: o.Reload, every: o.SelfCheck, service: o.Service, serving: make(chan struct{})}
	m.ctx, m.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	m.undo = append(m.undo, func() { m.cancel(executor.ErrStopping) })
	if err := m.open(journal.Starting(ctx)); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *Minion) open(ctx context.Context) error {
	release, err := daemon.Open(m.cfg.CacheDir, m.version)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, release)
	m.masters, err = upstream.Open(upstream.Setup{
		Config: m.cfg, Version: m.version, Service: m.service, Log: m.log,
		Daemon: &attendant{m: m, started: map[*upstream.Uplink]bool{}}, Busy: func() bool { return m.executor.Jobs().Count() > 0 }, Announce: func(tag string, data map[string]any) { m.events.Announce(tag, data) },
	})
	if err != nil {
		return err
	}
	if err := executor.CheckMine(m.cfg.MineFunctions); err != nil {
		return err
	}
	m.facts = host.Collect(m.cfg, m.version, m.log)
	if err := m.openBus(ctx); err != nil {
		return err
	}
	if err := m.openBoxes(ctx); err != nil {
		return err
	}
	if err := m.openFunctions(ctx); err != nil {
		return err
	}
	return m.openSocket()
}

// localRetention limits how long the minion's own bus keeps events.
const localRetention = 24 * time.Hour

// openBus starts the minion's own bus with its journal.
func (m *Minion) openBus(ctx context.Context) error {
	var err error
	store := filepath.Join(m.cfg.CacheDir, "journal")
	m.broker, err = broker.Start(broker.Options{
		Endpoints: bus.MinionEndpoints,
		Name:      "salt-minion", StoreDir: store, Sync: broker.SyncOf(m.cfg.JournalSync), Log: m.log,
		Context: m.ctx,
		Ready:   m.serving,
		Admit: func(p broker.Peer) bus.Identity {
			if !m.local.MayConnect(m.ctx, int(p.Local.UID)) {
				m.log.Warn("local connection refused: the minion's bus is for root, its own user and those whom event_acl names", "uid", p.Local.UID)
				return bus.Identity{}
			}
			return bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(int(p.Local.UID))}
		},
		Gone: func(i bus.Identity) {
			if m.server != nil {
				m.server.Gone(i.Inbox())
			}
		},
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.broker.Stop)
	j, err := journal.Open(ctx, m.broker.Conn(), journal.Options{
		MaxAge: localRetention, MaxBytes: m.cfg.OutboxMaxBytes, Store: m.broker.Store(), Names: filepath.Join(store, "names"), Reserve: m.broker.Reserve, Lost: eventbus.Gaps(m.broker),
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, j.Close)
	grants, err := eventacl.Parse(m.cfg.EventACL)
	if err != nil {
		return err
	}
	m.events, m.journal = eventbus.New(j, m.cfg.MaxEventSize, m.log), j
	m.events.SetGrants(grants)
	m.broker.WatchStore(m.events.TellLost(m.broker))
	return nil
}

// openFunctions makes what runs functions: for jobs, the schedule, beacons.
func (m *Minion) openFunctions(ctx context.Context) error {
	always := broker.SyncOf(m.cfg.JournalSync) == broker.SyncAlways
	m.host = host.New(host.Options{
		Config: m.cfg, InForce: m.inForce, Version: m.version, Key: m.masters.Key.Public().SHA256(), Facts: m.facts, Forwarder: m.forwarder, Masters: m.masters, Log: m.log,
	})
	if err := m.host.CheckReturners(); err != nil {
		return err
	}
	var err error
	m.executor, err = executor.Open(ctx, m.ctx, executor.Options{
		ID: m.cfg.ID, Dir: m.cfg.CacheDir, Always: always, Most: m.cfg.ProcessCountMax, Host: m.host, Masters: m.masters, Boxes: m.boxes, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.executor.Close)
	for _, u := range m.masters.All() {
		m.mines = append(m.mines, m.executor.NewMine(u, executor.MineOptions{Interval: m.cfg.MineInterval, Tell: m.cfg.MineReturnJob}))
	}
	if m.scheduler, err = scheduler.Open(scheduler.Options{Config: m.cfg, Runner: m.executor, Reload: m.reload, Log: m.log}); err != nil {
		return err
	}
	if m.beacons, err = beacon.NewManager(m.cfg, m.forwarder.FireBeacon, m.executor.Status, m.log); err != nil {
		return err
	}
	m.host.Serve(host.Parts{Jobs: m.executor.Jobs(), Scheduler: m.scheduler, Beacons: m.beacons, BeaconKinds: beacon.Kinds})
	return nil
}

// openSocket opens the socket through which root, the daemon's user and users in event_acl
// connect to the minion.
func (m *Minion) openSocket() error {
	m.local = localapi.New(localapi.Options{
		ID: m.cfg.ID, Version: m.version, Events: m.events, Facts: m.host, Forwarder: m.forwarder, Masters: m.masters, Boxes: m.boxes, Scheduler: m.scheduler, Log: m.log,
	})
	m.server = rpc.NewServer(m.broker.Conn(), m.broker.Owner, bus.MinionEndpoints, m.log)
	m.server.Slow, m.server.Unread = m.broker.Slow, broker.Unread(m.broker)
	m.local.Register(m.server)
	if err := m.server.Served(); err != nil {
		return err
	}
	return m.broker.ServeLocal(filepath.Join(m.cfg.SockDir, SocketName))
}

// Run serves until ctx ends or, unless the minion is a service, all masters refuse it or are
// refused, which is an error that wraps one of package upstream. When it returns, nothing of
// the minion is running.
func (m *Minion) Run(ctx context.Context) error {
	hangups, stop := daemon.Hangups()
	defer stop() // not before it is closed: the signal would end the process in the middle of that
	defer m.close()
	if err := m.server.Start(); err != nil {
		return err
	}
	m.broker.Meter(m.server.Probe)
	close(m.serving)
	refused := make(chan error, m.boxes.Count())
	for i, u := range m.masters.All() {
		m.wg.Go(func() {
			if err := u.Keep(m.ctx); err != nil {
				refused <- err
			}
		})
		m.wg.Go(func() { m.boxes.At(i).Drain(m.ctx) })
		if m.cfg.MineEnabled {
			m.wg.Go(func() { m.mines[i].Keep(m.ctx) })
		}
	}
	m.wg.Go(func() { m.scheduler.Run(m.ctx) })
	m.wg.Go(func() { m.beacons.Run(m.ctx) })
	m.wg.Go(func() { m.journal.Tend(m.ctx, m.log) })
	m.wg.Go(func() { eventbus.KeepMarks(m.ctx, m.events, journal.Marks{}) })
	remove, err := daemon.PIDFile(m.cfg.PIDFile)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, remove)
	m.log.Info("the minion is ready", "minion", m.cfg.ID, "fingerprint", m.masters.Key.Public().SHA256(), "version", m.version)
	stopped, err := daemon.Life{
		Name: "minion", Self: m.events.Self(filepath.Join(m.cfg.SockDir, SocketName), m.broker.Store()), Every: m.every,
		Failed: m.broker.Failed(), Refused: refused, Hangups: hangups, Hangup: m.hangup, Log: m.log,
	}.Live(ctx, m.ctx, &m.wg)
	m.undo = append([]func(){stopped}, m.undo...)
	if err == nil {
		m.log.Info("The Salt Minion is shutdown. " + context.Cause(ctx).Error())
	}
	return err
}

// stopTime limits how long a stopping minion waits for running jobs.
const stopTime = 5 * time.Second

// close closes what New has opened, the latest first. Jobs are ended and their returns stored
// in the outbox.
func (m *Minion) close() {
	if m.executor != nil {
		if left := m.executor.Stop(stopTime); left > 0 {
			m.log.Warn("jobs cut off", "count", left)
		}
	}
	m.cancel(executor.ErrStopping)
	if m.masters != nil {
		m.masters.Close()
	}
	if m.server != nil {
		m.server.Stop()
	}
	m.wg.Wait()
	if m.forwarder != nil {
		m.forwarder.Wait()
	}
	for i := len(m.undo) - 1; i >= 0; i-- {
		m.undo[i]()
	}
}
