package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/accord"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/fleet"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/runner"
)

// links are the connections of a member with the others, and with the parts of its master.
type links struct {
	broker     *broker.Broker
	exchange   *cluster.Exchange
	elsewhere  *fleet.Elsewhere
	bus        *eventbus.Member // the part of events for the other members
	journal    *journal.Journal
	lease      *lease.Member  // by which one member does what only one may do
	keys       *accord.Shared // what all members have decided about keys
	jobs       dispatch.All
	met        met
	named      named
	leaving    leaving
	former     former
	own        Own // what this member says of itself
	heard      heard
	alone      alone
	clocks     clocks
	shapes     shapes
	voters     voters
	copyKeeper copyKeeper
	rules      string // the digest of the own rules at the last comparison; used by Run
}

// Own is what a member says of itself to the others, and does by itself.
type Own interface {
	// Rules returns a digest of the access rules in force.
	Rules() string
	// Minions returns how many minions are connected to this member.
	Minions() int
	// Reload reads its configuration again.
	Reload() (runner.Reloaded, error)
	// Forget removes what is stored of a former member.
	Forget(ctx context.Context, member string) error
}

const (
	// waitFirst is when a start that waits for the other members says so, and waitTell how often
	// after that.
	waitFirst = 5 * time.Second
	waitTell  = 10 * time.Second
	// waitLook is the pause between two looks for them.
	waitLook = 250 * time.Millisecond
)

// Join waits until enough members run to store anything, and prepares the messages between
// them. tell is called with what is waited for. It ends with an error only when ctx ends, since
// the other members may be started much later.
func (m *Membership) Join(ctx context.Context, b *broker.Broker, tell func(string)) error {
	if m == nil {
		return nil
	}
	m.broker = b
	m.elsewhere = &fleet.Elsewhere{Log: m.log}
	m.exchange = cluster.New(cluster.Options{Name: m.name, Conn: b.Conn(), Minions: m.elsewhere, Log: m.log})
	defer m.removals.start(ctx, m.exchange, b.Cluster, &m.leaving)()
	defer during(ctx, func(ctx context.Context) { watchVoters(ctx, m) })()
	for wait := waitFirst; ; wait = waitTell {
		once, cancel := context.WithTimeout(ctx, wait)
		err := m.await(once)
		cancel()
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		linked, missing := m.present(b.Cluster)
		m.log.Warn("the master waits for the other members of its cluster", "cluster", m.cfg.ClusterID, "member", m.name,
			"linked", strings.Join(linked, ", "), "missing", strings.Join(missing, ", "), "err", err, "hint", waitHint(err, missing))
		tell("waiting for the other members: " + err.Error())
	}
}

// present returns the other members that are linked, by their names, and the addresses of those that are not.
func (i identity) present(c *broker.Cluster) (linked, missing []string) {
	for _, m := range c.Members() {
		linked = append(linked, m.Name)
	}
	for _, p := range c.Peers() {
		if p.Address != i.self && !p.Linked && !slices.Contains(linked, nameOf(p.Address)) {
			missing = append(missing, p.Address)
		}
	}
	return linked, missing
}

// waitHint is what to do about a member that waits. It was not ready since its start: no command reaches it, and
// what is wrong may be its own settings, so the way to go on without the others is not for everybody who reads this.
func waitHint(err error, missing []string) string {
	text := "start the members that are missing. If one of them runs, a line 'another member is not reached' says why it is not linked"
	switch {
	case len(missing) == 0:
		return "if this takes longer than an election, some seconds, members count that cluster_peers does not name: salt-run cluster.status at a member that is ready"
	case errors.Is(err, broker.ErrMinority):
		return text + ". If most of them are lost for ever, see 'The others are lost for ever' in doc/masters.md"
	}
	return text
}

// errNew is why a member waits that has not stored anything yet.
var errNew = errors.New("the journal of this member does not exist yet, and as many members as it has copies must run to make it")

// await returns when this member can open its journal: the members have a leader, and where the
// journal has to be made first, enough of them are there for its copies.
func (m *Membership) await(ctx context.Context) error {
	if err := m.broker.Cluster.Leader(ctx); err != nil {
		return err
	}
	exists, err := journal.Exists(ctx, m.broker.Conn(), m.name)
	if err != nil || exists {
		return err
	}
	tick := time.NewTicker(waitLook)
	defer tick.Stop()
	for m.broker.Cluster.Routes()+1 < m.copies {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d are running", errNew, m.broker.Cluster.Routes()+1, m.copies)
		}
	}
	return nil
}

// Open opens what all members have in common, in the journal of this one.
func (m *Membership) Open(ctx context.Context, j *journal.Journal, keys *keyring.Keyring) error {
	if m == nil {
		return nil
	}
	m.journal = j
	leases, err := j.Table(ctx, "leases")
	if err != nil {
		return err
	}
	m.lease = lease.New(m.name, leases, m.log)
	decisions, err := j.Table(ctx, keysTable)
	if err != nil {
		return err
	}
	agreed, err := j.OwnTable(ctx, "agreed")
	if err != nil {
		return err
	}
	m.keys, err = accord.OpenShared(ctx, accord.SharedOptions{Name: m.name, Dir: m.cfg.PKIDir, Table: decisions, Agreed: agreed, Keys: keys, Tell: m.tellCurrent, Log: m.log})
	return err
}

// tellCurrent logs whether this member knows what the others decide about keys.
func (m *Membership) tellCurrent(current bool) {
	switch {
	case current:
		m.log.Info("what the members of the cluster have decided about keys is known here")
	case m.serves():
		m.log.Warn("what the other members have decided about keys is not known here: if most of them are not reached, the keys that were accepted last stay so, since cluster_without_quorum is run; otherwise no minion is admitted until it is")
	default:
		m.log.Warn("what the other members have decided about keys is not known here: no minion is admitted until it is")
	}
}

// serves reports whether minions are served, and jobs run, without most of the others.
func (m *Membership) serves() bool { return m.cfg.ClusterWithoutQuorum == "run" }

// WithoutQuorum returns why nothing can be stored, where jobs are run nevertheless; otherwise nil.
// Nothing is an election, in which most members are reached.
func (m *Membership) WithoutQuorum() error {
	if m == nil || !m.serves() {
		return nil
	}
	if err := m.broker.Store().Err(); errors.Is(err, broker.ErrMinority) {
		return err
	}
	return nil
}

// Current reports whether what all members have decided about keys is in force here, or may be unknown, see
// alone.
func (m *Membership) Current() bool {
	if !m.serves() {
		return !m.keys.Stale()
	}
	return m.alone.serves(!m.keys.Stale(), m.WithoutQuorum() != nil, time.Now())
}

// Changed is called when keys of minions have changed here.
func (m *Membership) Changed(changes []keyring.Change) { m.keys.Changed(changes) }

// Leases returns what decides which member carries a job on; nil for a single master.
func (m *Membership) Leases() dispatch.Leases {
	if m == nil {
		return nil
	}
	return m.lease
}

// Name returns the name of this member, "" for a single master.
func (m *Membership) Name() string {
	if m == nil {
		return ""
	}
	return m.name
}

// Fleet returns what is told of the minions that are connected here; nil for a single master.
func (m *Membership) Fleet() fleet.Members {
	if m == nil {
		return nil
	}
	return m.exchange
}

// Jobs returns the other members, as far as jobs are concerned; nil for a single master.
func (m *Membership) Jobs() dispatch.Members {
	if m == nil {
		return nil
	}
	return m.exchange
}

// Guide returns what tells minions about the members, for this many accepted minions; nil for a
// single master.
func (m *Membership) Guide(accepted func() int) *fleet.Guide {
	if m == nil {
		return nil
	}
	return &fleet.Guide{Members: m.Members, Accepted: accepted, Publish: m.broker.Conn().Publish, Log: m.log}
}

// Parts are the parts of the master that need the other members.
type Parts struct {
	Fleet    *fleet.Fleet
	Jobs     *dispatch.Dispatcher
	Events   *eventbus.Bus
	Outboxes Served
	Audit    Served
	Own      Own
	// Cut ends the connection with this inbox.
	Cut func(inbox string)
}

// Served is a part that answers other members: the outboxes for what minions have to store, and the audit log.
type Served interface {
	// ServeMembers registers what other members ask for.
	ServeMembers(handle func(kind string, h func(ctx context.Context, from string, body []byte) (any, error)))
}

// Attach connects the parts of the master with the other members, before Start.
func (m *Membership) Attach(ctx context.Context, p Parts) error {
	if m == nil {
		return nil
	}
	m.elsewhere.Fleet, m.elsewhere.Jobs, m.elsewhere.Cut = p.Fleet, p.Jobs, p.Cut
	m.elsewhere.Ask, m.elsewhere.Others = m.exchange.Ask, m.exchange.Others
	m.elsewhere.Serve(m.exchange.Handle)
	dispatch.ServeMembers(p.Jobs, m.exchange.Handle)
	p.Outboxes.ServeMembers(m.exchange.Handle)
	p.Audit.ServeMembers(m.exchange.Handle)
	m.serveStatus()
	serveReload(m, p.Own.Reload)
	m.exchange.Handle(kindRemove, m.removeFor)
	m.leaving.serve(m.exchange, m.log)
	m.own, m.jobs = p.Own, dispatch.All{Dispatcher: p.Jobs}
	var err error
	m.bus, err = p.Events.Join(ctx, eventbus.MemberOptions{Name: m.name, Others: m.exchange.Others, Lease: m.lease})
	return err
}

// First returns what reports whether this member does what the cluster does by time, for all
// members; nil for a single master.
func (m *Membership) First() func(context.Context) (bool, error) {
	if m == nil {
		return nil
	}
	return m.bus.First
}

// Start begins to talk to the other members.
func (m *Membership) Start() error {
	if m == nil {
		return nil
	}
	return m.exchange.Start()
}

const (
	// compareEvery is how often the members are compared.
	compareEvery = 5 * time.Second
	// comparePause is how much later than a member that comes they are compared, so that many that
	// come do not cost more.
	comparePause = 100 * time.Millisecond
)

// Run follows the other members until ctx ends.
func (m *Membership) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.elsewhere.Run(ctx) })
	wg.Go(func() { m.watchLinks(ctx) })
	wg.Go(func() { watchVoters(ctx, m) })
	wg.Go(func() { repeat(ctx, m.copyKeeper.every, func() { keepCopies(ctx, m) }) })
	wg.Go(func() { m.leaving.watch(ctx, m.broker.Cluster, &m.former, m.own.Forget, m.log) })
	wg.Go(func() {
		m.former.watch(ctx, func() map[string]string { return keysOf(m.broker.Cluster.Members()) }, m.own.Forget, m.log)
	})
	wg.Go(func() { m.bus.Run(ctx) })
	wg.Go(func() { m.keys.Run(ctx) })
	wg.Go(func() { m.jobs.TakeOver(ctx) })
	m.follow(ctx)
}

// follow compares the members, at once when one comes or tells something new, until ctx ends.
func (m *Membership) follow(ctx context.Context) {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for news := m.removals.signal(); ; {
		m.compare(ctx)
		select {
		case <-tick.C:
			continue
		case <-m.exchange.Came():
		case <-news:
		case <-ctx.Done():
		}
		select {
		case <-time.After(comparePause):
		case <-ctx.Done():
			return
		}
	}
}

// unlinkedTime is how long a route may be missing until its member counts as gone: longer than
// it takes to replace a connection by another one.
const unlinkedTime = 300 * time.Millisecond

// watchLinks drops members as soon as there is no connection to them: their minions are told as
// disconnected, and what they connect to next counts.
func (m *Membership) watchLinks(ctx context.Context) {
	for {
		linked, changed := m.broker.Cluster.Linked()
		m.met.meet(linked)
		for _, name := range m.exchange.Others() {
			if !slices.ContainsFunc(linked, func(o member.Member) bool { return o.Name == name }) {
				m.exchange.Unlinked(name)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(unlinkedTime):
		case <-ctx.Done():
			return
		}
	}
}

// Stop tells the other members that this one stops.
func (m *Membership) Stop() {
	if m != nil && m.exchange != nil {
		m.exchange.Stop()
	}
}
