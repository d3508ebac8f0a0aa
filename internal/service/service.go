// Package service opens the parts of a master that serve minions and users: what it knows of
// its minions, jobs, reactions to events, runners, files, and the receiver for the outboxes of
// minions. It says which of them answers which request.
//
// Who may connect, where events are stored and what is allowed is not decided here: package
// master opens what these parts need for that, and hands it over.
package service

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/fileapi"
	"github.com/brinebus/brine/internal/fleet"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/reactor"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/runnerjob"
	"github.com/brinebus/brine/internal/salt"
)

// Connections are those of minions.
type Connections interface {
	fleet.Connections
	rpc.Publisher
}

// Options are what the parts need of their master.
type Options struct {
	Context   context.Context // the end of it ends what the parts do
	Config    *config.Master
	InForce   func() map[string]any // the configuration in force
	Version   string
	Key       keyring.Own
	Keys      *keyring.Keyring
	Journal   *journal.Journal
	Retention time.Duration // how long the journal keeps events and jobs; 0 is forever
	Durable   func() error  // returns when stored messages are on the disk
	Events    *eventbus.Bus
	Authz     *authz.Authorizer // not an interface: nothing else may decide
	AuditLog  *audit.Log
	// Connections are those of minions. CutOlder cuts all connections of a minion except one.
	Connections Connections
	CutOlder    func(id salt.MinionID, inbox string)
	// Standby reports whether this master waits for the end of another one, which has the minions.
	Standby func() bool
	Cluster Cluster
	Runners runner.Host      // what runners can use beside these parts
	Latency dispatch.Latency // of returns; may be nil
	Log     *slog.Logger
}

// Cluster is this master as one of several; zero for a single master.
type Cluster struct {
	Fleet  fleet.Members
	Jobs   dispatch.Members
	Leases dispatch.Leases
	Guide  *fleet.Guide
	// Decisions are those about keys of all masters that write the same tables.
	Decisions fleet.Decisions
	Name      string
	Number    int
}

// Services are the parts. Run must run beside them.
type Services struct {
	Options
	Fleet    *fleet.Fleet
	Arrivals *fleet.Arrivals
	Jobs     *dispatch.Dispatcher
	Reactor  *reactor.Reactor
	Outboxes *outbox.Receiver // receives from the outboxes of minions

	files   *fileapi.Server
	runners *runnerjob.Server
}

// Open opens the parts. They do nothing yet, so there is nothing to close after an error.
func Open(ctx context.Context, o Options) (*Services, error) {
	s := &Services{Options: o}
	if err := s.openFleet(ctx); err != nil {
		return nil, err
	}
	if err := s.openJobs(); err != nil {
		return nil, err
	}
	var err error
	s.Outboxes, err = outbox.NewReceiver(ctx, outbox.ReceiverOptions{
		Journal: s.Journal, Returns: s.Jobs, TagSpaces: s.Authz, MaxEventSize: s.Config.MaxEventSize, Durable: s.Durable, Elsewhere: s.storedElsewhere(), Keys: s.Keys, Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	s.files, err = fileapi.Open(ctx, fileapi.Options{
		Roots: s.Config.FileRoots, CacheDir: s.Config.CacheDir, Uploads: s.Config.FileRecv, MaxUpload: int64(s.Config.FileRecvMaxSize) << 20, Journal: s.Journal, Audit: s.Authz, Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	s.openRunners()
	return s, nil
}

// storedElsewhere knows what other members have stored of the outboxes of minions; nil for a single
// master.
func (s *Services) storedElsewhere() outbox.Elsewhere {
	if s.Cluster.Jobs == nil {
		return nil
	}
	return &outbox.Members{Exchange: s.Cluster.Jobs, Journal: s.Journal, Journals: s.Events.Mirrors}
}

func (s *Services) openFleet(ctx context.Context) (err error) {
	s.Fleet, err = fleet.Open(ctx, fleet.Options{
		Journal: s.Journal, Keys: s.Keys, Events: s.Events, Nodegroups: func() map[string]any { return s.Authz.Rules().Nodegroups() }, PillarRoots: s.Config.PillarRoots, Log: s.Log,
		MayReadMine: s.Authz.Mine, MayTarget: s.Authz.MayTarget, Refused: s.Authz.RefuseEntry, Members: s.Cluster.Fleet, Name: s.Cluster.Name, Decisions: s.Cluster.Decisions,
	})
	s.Authz.Fleet = s.Fleet
	return err
}

// openJobs opens what starts jobs and follows them, for users, minions and reactions.
func (s *Services) openJobs() (err error) {
	s.Jobs, err = dispatch.Open(s.Context, dispatch.Options{
		Journal: s.Journal, Fleet: s.Fleet, Keys: s.Keys, Events: s.Events, Audit: s.Authz, Conn: s.Connections, Key: s.Key.PrivateKey,
		Known: s.Authz.Tables.Known, Retention: s.Retention, Durable: s.Durable, Log: s.Log, Latency: s.Latency,
		Members: s.Cluster.Jobs, Number: s.Cluster.Number, Name: s.Cluster.Name, Leases: s.Cluster.Leases, Journals: s.journals(), Spool: s.AuditLog.Spool(), Standby: s.Standby,
	})
	if err != nil {
		return err
	}
	s.Arrivals = &fleet.Arrivals{
		Fleet: s.Fleet, Connections: s.Connections, CutOlder: s.CutOlder, Jobs: s.Jobs, Now: s.Jobs.Now, Version: s.Version, Cluster: s.Cluster.Guide, Log: s.Log,
	}
	s.Reactor = reactor.New(s.Context, reactor.Options{
		Events: s.Events, DeadLetters: s.Events.DeadLetters(), Start: dispatch.NewRequests(s.Jobs, s.Authz).React, Log: s.Log,
	})
	return nil
}

// openRunners makes what runs runners, with the parts opened so far.
func (s *Services) openRunners() {
	h := s.Runners
	h.Accepted, h.Presence, h.Facts, h.Cache, h.Reactor, h.Files, h.Uploads = s.Keys, s.Fleet, s.Fleet, s.Fleet, s.Reactor, s.files.Files, s.files
	h.MasterKey, h.Version, h.Log = s.Key.Public(), s.Version, s.Log
	jobs := dispatch.All{Dispatcher: s.Jobs}
	s.runners = runnerjob.New(s.Context, runnerjob.Options{
		Host: h, Authz: s.Authz, AuditLog: s.AuditLog, Jobs: jobs, Active: jobs, Journal: s.journals(), Events: s.Events,
		Keys:     func(who audit.Who) runner.KeyStore { return s.Keys.By(who) },
		Config:   func() map[string]any { return config.Disclose(s.InForce()) },
		CacheDir: s.Config.CacheDir, ConfigDir: s.Config.ConfigDir, NextJID: s.Jobs.NextJID, MaxEventSize: s.Config.MaxEventSize,
	})
}

// journals returns the own journal together with those of other masters.
func (s *Services) journals() journal.All {
	meet := func(ctx context.Context) error { return eventbus.Meet(ctx, s.Events) }
	return journal.All{Own: s.Journal, Mirrors: s.Events.Mirrors, Meet: meet, Log: s.Log}
}

// Run keeps what is known of minions up to date until ctx ends.
func (s *Services) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.Fleet.Keep(ctx, s.Log) })
	wg.Go(func() { s.Outboxes.Keep(ctx) })
	wg.Go(func() { s.Arrivals.Cluster.Watch(ctx) })
	wg.Go(func() { s.files.Run(ctx) })
	wg.Wait()
}

// Wait returns when nothing of the parts is under way any more, after the end of Context.
func (s *Services) Wait() {
	s.runners.Wait()
	s.Reactor.Wait()
	s.Jobs.Wait()
}
