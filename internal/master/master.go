// Package master is the master's daemon: it admits minions by their keys, runs jobs on them,
// keeps the journal, and serves the command line tools.
//
// It has no rules of its own about keys (pki), targets (target), permissions (acl, bus) or the
// progress of a job (job): it connects these with the bus.
package master

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/admission"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/membership"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/service"
	"github.com/brinebus/brine/internal/settings"
)

// SocketName is the file in sock_dir through which local tools connect to the master.
const SocketName = "master.sock"

// Options are what a master is started with.
type Options struct {
	Config  *config.Master
	Version string
	Log     *slog.Logger
	// Reload reads the configuration again, after SIGHUP.
	Reload func() (*config.Master, error)
	// Latency gets the time that each return has taken. It may be nil.
	Latency interface{ Observe(seconds float64) }
	// Stores moves the store as a whole; nil only where that is not needed.
	Stores Stores
	// Starting gets, for a start that may wait without a limit, what returns nil while another master is at work and this one
	// is connected to take over, otherwise what the start waits for. It may be nil.
	Starting func(ready func() error)
	// SelfCheck is the pause between two checks whether the daemon serves; 0 is the default.
	SelfCheck time.Duration
}

// Master is a master's daemon. New makes it, Run serves.
type Master struct {
	cfg       *config.Master
	version   string
	log       *slog.Logger
	key       keyring.Own
	keys      *keyring.Keyring
	broker    *broker.Broker
	server    *rpc.Server
	journal   *journal.Journal
	services  *service.Services
	host      runner.Host // what runners can use beside the services
	auditLog  *audit.Log
	events    *eventbus.Bus
	admission *admission.Admission
	tellLost  eventbus.Found // for losses of the store
	serving   chan struct{}  // closed when everything is open; connections wait for it
	authz     *authz.Authorizer
	marks     journal.Marks // of deleted tokens
	settings  *settings.Settings
	start     settings.Compiled // the reloadable settings, as of the start
	every     time.Duration     // between two self-checks
	latency   interface{ Observe(seconds float64) }
	stores    Stores
	starting  func(ready func() error)
	mirror    *membership.Mirror     // nil without journal_mirror
	member    *membership.Membership // nil without a cluster
	hosted    *membership.Hosted     // nil without nats_jetstream
	external  *external              // nil without nats_servers
	undo      []func()               // closes what New has opened, in order
	ctx       context.Context
	cancel    context.CancelFunc
	end       context.CancelCauseFunc // makes Run return
	wg        sync.WaitGroup
}

// New checks everything, takes the lock on the data, and opens listener, journal and socket.
// After an error nothing is left open. The master serves once Run is called; until then minions
// and tools wait.
func New(ctx context.Context, o Options) (*Master, error) {
	m := &Master{cfg: o.Config, version: o.Version, log: o.Log, every: o.SelfCheck, latency: o.Latency, stores: o.Stores, starting: o.Starting, serving: make(chan struct{})}
	m.host.Custom = settings.Runners(o.Config, o.Log)
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.undo = append(m.undo, m.cancel)
	m.settings = settings.New(settings.Options{Start: o.Config, Read: o.Reload, Apply: m.apply, Rules: func() *authz.Rules { return m.authz.Rules() }, Status: m.status, Log: o.Log})
	if err := m.open(journal.Starting(ctx)); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// apply puts a new configuration in force, or nothing of it.
func (m *Master) apply(cfg *config.Master, c settings.Compiled) error {
	if err := m.keys.Configure(cfg); err != nil {
		return err
	}
	m.authz.SetRules(c.Rules) // before listeners reconnect, since these rules say who is an operator
	m.events.SetGrants(c.Grants)
	m.services.Reactor.Set(c.Reactions)
	m.authz.Logins.Authenticator.Set(c.Backends)
	return nil
}

// status sets the status line in the service manager. A service manager that only waited for
// the start is gone by now.
func (m *Master) status(line string) {
	if err := daemon.Notify("STATUS=" + line); err != nil {
		m.log.Debug("cannot notify the service manager", "err", err)
	}
}

func (m *Master) open(ctx context.Context) error {
	var err error
	if m.start, err = settings.Compile(m.cfg, &m.settings.Users); err != nil {
		return err // the master does not serve with a mistake in the rules
	}
	m.authz = authz.New(authz.Options{
		Users: &m.settings.Users, Tables: settings.Tables(m.host.Custom), FileRecv: m.cfg.FileRecv, KeyRevoke: m.cfg.AllowMinionKeyRevoke, APIUser: m.cfg.APIUser, Remote: m.cfg.RemoteLogin, Log: m.log,
	}, m.start.Rules)
	release, err := daemon.Open(m.cfg.CacheDir, m.version)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, release)
	if err := m.openKeys(); err != nil {
		return err
	}
	if err := m.openBroker(ctx); err != nil {
		return err
	}
	if err := m.openJournal(ctx); err != nil {
		return m.hosted.Fault(ctx, err)
	}
	return m.openServer()
}

func (m *Master) openKeys() error {
	var err error
	if m.key, err = keyring.OpenOwn(m.cfg, m.log); err != nil {
		return err
	}
	if m.keys, err = keyring.Open(m.cfg, m.log); err != nil {
		return err
	}
	m.admission = admission.New(m.ctx, admission.Options{Keys: m.keys, Users: &m.settings.Users, Version: m.version, MaxMinions: m.cfg.MaxMinions, Log: m.log})
	return nil
}

func (m *Master) openBroker(ctx context.Context) error {
	certificate, err := m.admission.Certificates(m.key.PrivateKey, m.key.Signature)
	if err != nil {
		return err
	}
	if m.member, err = membership.New(ctx, m.cfg, m.key, m.version, m.waits, m.log); err != nil {
		return err
	}
	m.hosted = membership.NewHosted(m.cfg, m.log)
	if err := m.member.CheckLeave(ctx, m.waits); err != nil {
		return err
	}
	if err := m.checkStore(); err != nil {
		return err
	}
	if m.mirror, err = membership.NewMirror(m.cfg, m.key, m.storeDir(), m.version, m.log); err != nil {
		return err
	}
	m.broker, err = broker.Start(broker.Options{
		Link:                m.mirror.Links(),
		Cluster:             m.member.Cluster(),
		Endpoints:           bus.MasterEndpoints,
		Name:                "salt-master",
		Listen:              m.listens(),
		TLS:                 &tls.Config{GetCertificate: certificate, VerifyConnection: m.admission.CheckVersion},
		StoreDir:            m.brokerDir(),
		Sync:                broker.SyncOf(m.cfg.JournalSync),
		Admit:               m.admission.Admit,
		Context:             m.ctx,
		Gone:                m.gone,
		BringsOthers:        m.authz.Logins.BringsOthers,
		AccountBringsOthers: m.authz.AccountsBringOthers(),
		Ready:               m.serving,
		Ping:                m.cfg.MinionAliveInterval,
		Log:                 m.log,
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.broker.Stop)
	if err := m.openExternal(certificate); err != nil {
		return err
	}
	m.keys.Here = m.connections().Holds
	return nil
}

func (m *Master) openJournal(ctx context.Context) error {
	if err := m.joinOthers(ctx); err != nil {
		return err
	}
	defer tellWhile(func() { m.waits("the journal is opened") })() // a restore, or servers that answer late, may take minutes
	err := m.restoreStore(ctx)
	if err != nil {
		return err
	}
	m.journal, err = journal.Open(ctx, m.storeConn(), m.journalOptions(journal.Options{
		MaxAge: m.retention(), MaxBytes: m.cfg.EventMaxBytes, Store: m.storage(), Names: filepath.Join(m.storeDir(), "names"), Reserve: m.broker.Reserve, Lost: eventbus.Gaps(m.broker),
	}))
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.journal.Close)
	if err := m.member.Open(ctx, m.journal, m.keys); err != nil {
		return err
	}
	if err := m.hosted.Open(ctx, m.journal, m.keys); err != nil {
		return err
	}
	return m.openParts(ctx)
}

// openParts opens what stores something in the journal.
func (m *Master) openParts(ctx context.Context) error {
	m.events = eventbus.New(m.journal, m.cfg.MaxEventSize, m.log)
	m.events.SetGrants(m.start.Grants)
	m.tellLost = m.events.TellLost(m.broker)
	if err := m.openAudit(ctx); err != nil {
		return err
	}
	if err := m.openServices(ctx); err != nil {
		return err
	}
	if err := m.openTokens(ctx); err != nil {
		return err
	}
	err := m.openOthers(ctx)
	m.undo = append(m.undo, m.services.Wait) // before what they read is closed
	return err
}

// openServices opens what serves minions and users.
func (m *Master) openServices(ctx context.Context) (err error) {
	m.host.Settings, m.host.Journal, m.host.NATS, m.host.Cluster = m.settings, store{m}, servers{m}, m.member
	m.host.Transition, m.host.Reloader = transition{m}, membership.Reloader{Member: m.member}
	m.services, err = service.Open(ctx, service.Options{
		Context: m.ctx, Config: m.cfg, InForce: m.settings.InForce, Version: m.version, Key: m.key, Keys: m.keys, Log: m.log,
		Journal: m.journal, Retention: m.retention(), Durable: m.durable, Events: m.events, Authz: m.authz, AuditLog: m.auditLog,
		Connections: m.connections(), Standby: m.external.otherAtWork, CutOlder: m.admission.CutOlder, Runners: m.host, Latency: m.latency,
		Cluster: service.Cluster{
			Fleet: m.member.Fleet(), Jobs: m.member.Jobs(), Leases: m.member.Leases(), Name: m.member.Name(), Number: m.member.Number(),
			Guide:     m.member.Guide(func() int { return len(m.keys.IDs()) }),
			Decisions: membership.Decisions(m.member, m.hosted),
		},
	})
	return err
}

// gone is called by the broker for every connection that has ended.
func (m *Master) gone(i bus.Identity) {
	m.server.Gone(i.Inbox())
	if m.external != nil {
		m.external.server.Gone(i.Inbox())
	}
	m.authz.Logins.Ended(i.Inbox())
	m.services.Arrivals.Gone(i)
}

func (m *Master) openServer() error {
	a := m.admission
	a.Connections, a.Audit, a.Events, a.Minions, a.Jobs = m.connections(), m.auditLog, m.events, m.services.Fleet, m.services.Jobs
	a.Logins = m.authz.Logins
	a.DecidedElsewhere = func() bool { return m.mirror == nil && m.external.otherAtWork() } // a mirror brings decisions to the other one
	m.authz.Logins.Came = func(inbox string) bool { _, here := m.broker.Owner(inbox); return here }
	a.Local = func(ctx context.Context, i bus.Identity) audit.Who { return m.authz.Local(ctx, i).Who() }
	m.undo = append(m.undo, a.Wait)
	m.server = rpc.NewServer(m.broker.Conn(), m.broker.Owner, bus.MasterEndpoints, m.log)
	m.server.Room = daemon.MakeRoom
	m.server.Cut, m.server.CutKey, m.server.Slow, m.server.Authorize = m.admission.Cut, m.broker.Cut.Unaccepted, m.broker.Slow, m.authz.Authorize
	m.server.Unread, m.server.SlowOne = broker.Unread(m.broker), broker.SlowOne(m.broker)
	m.server.Quota = m.authz.Logins.Quota
	m.server.GrainsCount = m.keys.GrainsCount
	m.register(m.server, bus.MasterEndpoints)
	m.services.RegisterEvents(m.server)
	if err := m.server.Served(); err != nil {
		return err
	}
	if err := m.openExternalServer(); err != nil {
		return err
	}
	return m.broker.ServeLocal(filepath.Join(m.cfg.SockDir, SocketName))
}

// Addr is the listen address for minions, nil with nats_servers.
func (m *Master) Addr() net.Addr { return m.broker.Addr() }

// Run serves until ctx ends, then stops everything. When it returns, nothing of the master is
// running.
func (m *Master) Run(ctx context.Context) error {
	hangups, stop := daemon.Hangups()
	defer stop() // not before it is closed: the signal would end the process in the middle of that
	defer m.close()
	ctx, m.end = context.WithCancelCause(ctx)
	changed, err := m.keys.Store.Watch(m.ctx, m.log)
	if err != nil {
		return err
	}
	if err := m.keys.Refresh(); err != nil {
		return err
	}
	m.keys.Take() // it is not news
	m.services.Fleet.ForgetDeleted()
	m.wg.Go(func() { m.journal.Tend(m.ctx, m.log) })
	m.wg.Go(func() { m.authz.KeepAccounts(m.ctx) })
	if err := m.server.Start(); err != nil {
		return err
	}
	m.broker.Meter(m.server.Probe)
	if err := m.member.Start(); err != nil {
		return err
	}
	switch err := m.services.Jobs.Resume(journal.Starting(ctx)); {
	case ctx.Err() != nil:
		return nil // it was stopped before it has begun
	case err != nil:
		return err
	}
	m.services.Reactor.Set(m.start.Reactions)
	m.start = settings.Compiled{} // the parts have it now
	close(m.serving)              // from here on a newer configuration may be put in force
	m.wg.Go(func() { m.services.Run(m.ctx) })
	m.watchStore()
	m.wg.Go(func() { m.admission.Watch(changed) })
	if m.cfg.PresenceEvents {
		m.wg.Go(func() { m.services.Fleet.Announce(m.ctx, m.cfg.LoopInterval, m.events, m.member.First()) })
	}
	m.wg.Go(func() { m.authz.Logins.Authenticator.Keep(m.ctx) })
	m.wg.Go(func() { m.marks.Keep(m.ctx) })
	m.wg.Go(func() { eventbus.KeepMarks(m.ctx, m.events, journal.Marks{}) })
	m.wg.Go(func() { m.admission.WatchExpiry(m.ctx) })
	m.wg.Go(func() { m.admission.WatchLogins(m.ctx) })
	m.runOthers()
	m.runExternal()
	keyring.TellSigning(m.cfg, m.key, len(m.keys.IDs()), m.log)
	remove, err := daemon.PIDFile(m.cfg.PIDFile)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, remove)
	m.tellOldKeys()
	m.auditLog.Note(audit.Entry{Kind: audit.OfLog, Verdict: audit.Noted, Fun: "master.start", Reason: "version " + m.version})
	m.log.Info("the master is ready", "address", m.reached(), "fingerprint", m.key.Public().SHA256(), "version", m.version)
	if m.cfg.OpenMode {
		m.log.Warn("open_mode is on: every key that connects is accepted, and replaces the one that its id had")
	}
	stopped, err := daemon.Life{
		Name: "master", Self: m.events.Self(filepath.Join(m.cfg.SockDir, SocketName), m.storage()), Every: m.every,
		Failed: m.broker.Failed(), Refused: m.hosted.Lost(), Hangups: hangups, Hangup: func() { _, _ = m.settings.Reload() }, // Reload logs its errors
		Log: m.log,
	}.Live(ctx, m.ctx, &m.wg)
	m.undo = append([]func(){stopped}, m.undo...)
	if err == nil {
		m.log.Info("the master is stopping", "reason", context.Cause(ctx).Error())
		m.services.Arrivals.Cluster.Retire(m.ctx) // while it still serves them, and the jobs under way
	}
	return err
}

// close closes what New has opened, the latest first.
func (m *Master) close() {
	m.cancel()
	if m.server != nil {
		m.server.Stop()
	}
	m.external.stop()
	m.member.Stop()
	m.wg.Wait()
	for i := len(m.undo) - 1; i >= 0; i-- {
		m.undo[i]()
	}
}

// CheckKeys returns why New would fail with the master's own key, its signing pair or its signature. It changes nothing.
func CheckKeys(cfg *config.Master) error { return keyring.CheckOwn(cfg) }

// MissingSigningPair warns that New would make a signing pair in a cluster, whose members share one; "" if it would not.
func MissingSigningPair(cfg *config.Master) string { return keyring.MissingSigningPair(cfg) }
