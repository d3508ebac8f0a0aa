// Package minion is the minion's daemon: one identity, a small bus of its own for
// the scripts of its machine, a connection to its master, and the functions that
// it runs for that master.
//
// What can be run is package module, run by package function; whether a job is genuine is package job.
package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
	"github.com/brinebus/brine/internal/upstream"
)

// SocketName is the file in sock_dir through which local tools reach the minion.
const SocketName = "minion.sock"

// Options are what a minion is started with.
type Options struct {
	Config  *config.Minion
	Version string
	Log     *slog.Logger
	// Service says that somebody who does not look at its end has started the minion:
	// that a master is refused, or refuses it, does not end it.
	Service bool
	// Reload reads the configuration anew, at SIGHUP, and takes its log levels.
	Reload func() (*config.Minion, error)
	// SelfCheck is the pause between two checks whether the daemon serves; 0 is the
	// usual one.
	SelfCheck time.Duration
}

// Minion is a minion's daemon. New makes it, Run serves.
type Minion struct {
	cfg      *config.Minion
	id       salt.MinionID
	version  string
	log      *slog.Logger
	key      *pki.PrivateKey
	broker   *broker.Broker
	serving  chan struct{} // closed when requests are served; connections wait for it
	server   *rpc.Server
	events   *eventbus.Bus
	journal  *journal.Journal
	schedule *scheduler
	beacons  *beacons
	seen     *job.Seen
	grains   *grains
	modules  *extension.Set // that people have added
	custom   *extension.Set // likewise, returners
	jobs     *jobTable
	users    auth.Users
	reload   func() (*config.Minion, error)
	service  bool                          // refusals do not end it
	taken    atomic.Pointer[config.Minion] // the configuration that was read last and taken
	masters  *upstream.Uplinks             // none with master_type disable
	origins  upstream.Origins
	told     logging.Throttle // of events that were refused
	every    time.Duration    // between two self-checks
	reserves *outbox.Reserves
	boxes    outbox.Boxes    // one for each uplink
	linked   []chan struct{} // likewise: signals that a session was made
	undo     []func()
	ctx      context.Context
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup
}

// errStopping is the cause of what ends because the daemon does.
var errStopping = errors.New("the minion is stopping")

// New checks everything, takes the lock on the data, and opens the minion's own
// bus. After an error nothing is left open.
func New(ctx context.Context, o Options) (*Minion, error) {
	m := &Minion{cfg: o.Config, id: o.Config.ID, version: o.Version, log: o.Log, reload: o.Reload, every: o.SelfCheck, service: o.Service, jobs: newJobTable(o.Config.ProcessCountMax), serving: make(chan struct{})}
	m.ctx, m.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	m.undo = append(m.undo, func() { m.cancel(errStopping) })
	m.modules, m.custom = extension.OfMinion(extension.Modules, m.cfg.ModuleDirs, m.cfg.CacheDir, m.log), extension.OfMinion(extension.Returners, m.cfg.ModuleDirs, m.cfg.CacheDir, m.log)
	if err := m.open(ctx); err != nil {
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
	key, created, err := pki.EnsurePair(m.cfg.PKIDir, "minion", pki.KeyType(m.cfg.KeyType), m.cfg.KeySize)
	if err != nil {
		return err
	}
	if created {
		m.log.Info("generated the minion's keys", "dir", m.cfg.PKIDir, "fingerprint", key.Public().SHA256())
	}
	m.key = key
	m.warnOfSigningKey()
	if m.seen, err = job.OpenSeen(filepath.Join(m.cfg.CacheDir, "jobs_seen"), broker.SyncOf(m.cfg.JournalSync) == broker.SyncAlways); err != nil {
		return err
	}
	m.undo = append(m.undo, func() { m.seen.Close() })
	if m.reserves, err = outbox.OpenReserves(m.cfg.CacheDir, broker.SyncOf(m.cfg.JournalSync) == broker.SyncAlways, m.log); err != nil {
		return err
	}
	if err := checkMine(m.cfg); err != nil {
		return err
	}
	m.grains = newGrains(m.cfg, m.version, m.log)
	if err := m.openBus(ctx); err != nil {
		return err
	}
	if _, err := m.returners("", returner.Options{}); err != nil {
		return config.Mistake(fmt.Errorf("setting return: %w", err))
	}
	if m.schedule, err = openScheduler(m); err != nil {
		return err
	}
	if m.beacons, err = openBeacons(m); err != nil {
		return err
	}
	return nil
}

// warnOfSigningKey looks for what must never be on a minion: who has the private
// half of the signing pair can make any key a master's.
func (m *Minion) warnOfSigningKey() {
	base := filepath.Join(m.cfg.PKIDir, m.cfg.MasterSignKeyName)
	if _, err := os.Lstat(base + ".pem"); err == nil {
		m.tellSigningKey(slog.LevelError, base+".pem")
	}
	if _, err := pki.LoadPublic(base + ".pub"); errors.Is(err, pki.ErrWantedPublic) {
		m.tellSigningKey(logging.LevelCritical, base+".pub") // likely the same mistake on all minions
	}
}

func (m *Minion) tellSigningKey(level slog.Level, file string) {
	m.log.Log(m.ctx, level, "the private signing key of the masters is on this minion: whoever has it can pretend to be a master. Remove it here, and make a new pair if others may have read it", "file", file)
}

// localRetention bounds what the minion's own bus remembers.
const localRetention = 24 * time.Hour

// openBus starts the minion's own bus with its journal and its outbox, and the
// socket by which root and the daemon's user reach them.
func (m *Minion) openBus(ctx context.Context) error {
	var err error
	store := filepath.Join(m.cfg.CacheDir, "journal")
	m.broker, err = broker.Start(broker.Options{
		Endpoints: bus.MinionEndpoints,
		Name:      "salt-minion", StoreDir: store, Sync: broker.SyncOf(m.cfg.JournalSync), Log: m.log,
		Context: m.ctx,
		Ready:   m.serving,
		Admit: func(p broker.Peer) bus.Identity {
			if !m.mayConnect(int(p.Local.UID)) {
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
		MaxAge: localRetention, MaxBytes: m.cfg.OutboxMaxBytes, Store: m.broker.Store(), Names: filepath.Join(store, "names"), Reserve: m.broker.Reserve, Lost: m.lostEvents(),
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
	now, _ := m.broker.Lost()
	m.tellLost(now)
	m.broker.WatchStore(m.tellLost)
	if err := m.openMasters(ctx); err != nil {
		return err
	}
	if err := m.recoverJobs(ctx); err != nil {
		return err
	}
	m.server = rpc.NewServer(m.broker.Conn(), m.broker.Owner, bus.MinionEndpoints, m.log)
	m.server.Slow, m.server.Authorize = m.broker.Slow, m.authorize
	m.register()
	if err := m.server.Served(); err != nil {
		return err
	}
	l, err := socket.Listen(filepath.Join(m.cfg.SockDir, SocketName), 0o666)
	if err != nil {
		return err
	}
	m.broker.ServeLocal(l)
	return nil
}

// lostEvents is what is lost of the journal of events.
func (m *Minion) lostEvents() (gaps []journal.Gap) {
	_, all := m.broker.Lost()
	for _, l := range all {
		if l.Stream == journal.Stream {
			gaps = append(gaps, journal.Gap{From: l.From, To: l.To})
		}
	}
	return gaps
}

// tellLost tells listeners of this machine of what is lost of the store.
func (m *Minion) tellLost(now []blockfile.Lost) {
	m.events.SetLost(m.lostEvents())
	for _, l := range now {
		m.events.Announce(event.JournalLost, l.Map())
	}
}

// Run serves until ctx ends or, unless the minion is a service, all masters refuse it
// or are refused, which is an error that wraps one of package upstream. When it returns nothing of the minion
// is running.
func (m *Minion) Run(ctx context.Context) error {
	defer m.close()
	if err := m.server.Start(); err != nil {
		return err
	}
	m.broker.Meter(m.server.Mark)
	close(m.serving)
	hangups, stop := daemon.Hangups()
	defer stop()
	refused := make(chan error, len(m.boxes))
	for i, u := range m.masters.All() {
		m.wg.Go(func() {
			if err := u.Keep(m.ctx); err != nil {
				refused <- err
			}
		})
		m.wg.Go(func() { m.boxes[i].Drain(m.ctx) })
		m.wg.Go(func() { m.keepMine(m.ctx, u) })
	}
	m.wg.Go(func() { m.schedule.run(m.ctx) })
	m.wg.Go(func() { m.beacons.engine.Run(m.ctx) })
	m.wg.Go(func() { m.journal.Tend(m.ctx, m.log) })
	remove, err := daemon.PIDFile(m.cfg.PIDFile)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, remove)
	m.log.Info("the minion is ready", "minion", m.id, "fingerprint", m.key.Public().SHA256(), "version", m.version)
	if err := daemon.Ready(); err != nil {
		m.log.Warn("systemd was not told", "err", err)
	}
	deaf := m.checkItself()
	for {
		select {
		case <-ctx.Done():
			m.log.Info("The Salt Minion is shutdown. " + context.Cause(ctx).Error())
			_ = daemon.Notify("STOPPING=1")
			return nil
		case err := <-refused:
			return err
		case err := <-m.broker.Failed():
			m.undo = append([]func(){daemon.EndWithin(deafStop)}, m.undo...)
			return err
		case err := <-deaf:
			m.log.Error("the minion runs and does not serve: it ends, so that it is started again", "err", err)
			m.undo = append([]func(){daemon.EndWithin(deafStop)}, m.undo...)
			return err
		case <-hangups:
			m.hangup()
		}
	}
}

// deafStop is how long a minion that does not serve may take to stop.
const deafStop = 20 * time.Second

// checkItself finds out, while the minion runs, whether its bus serves, and tells when it
// does not.
func (m *Minion) checkItself() <-chan error {
	deaf := make(chan error, 1)
	self := m.events.Self(filepath.Join(m.cfg.SockDir, SocketName), m.broker.Store())
	m.wg.Go(func() {
		defer self.Close()
		if err := (daemon.SelfCheck{Check: self.Check, Every: m.every, Log: m.log}).Run(m.ctx); err != nil {
			deaf <- err
		}
	})
	return deaf
}

// stopTime bounds how long running jobs are waited for when the minion stops.
const stopTime = 5 * time.Second

// close undoes what New opened, the latest first. Jobs are ended and their
// returns kept in the outbox.
func (m *Minion) close() {
	if left := m.jobs.stop(errStopping, stopTime); left > 0 {
		m.log.Warn("jobs cut off", "count", left)
	}
	m.cancel(errStopping)
	if m.masters != nil {
		m.masters.Close()
	}
	if m.server != nil {
		m.server.Stop()
	}
	m.wg.Wait()
	for i := len(m.undo) - 1; i >= 0; i-- {
		m.undo[i]()
	}
}
