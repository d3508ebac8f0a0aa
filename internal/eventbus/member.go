package eventbus

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/logging"
)

// MemberOptions are what makes a bus that of a member of a cluster. All but Lease are required.
type MemberOptions struct {
	Name   string          // of this member, and of its journal
	Others func() []string // the other members that are running
	// Lease is that of this member, which Run renews; nil makes one.
	Lease *lease.Member
}

// Member is the part of a bus that works together with the other members: listeners hear the
// journals of all of them, and may continue at any of them; what happens to an event only once
// happens at the member of its journal, or at another one while that is gone.
type Member struct {
	opts     MemberOptions
	events   *Bus
	lease    *lease.Member
	duties   duties
	throttle logging.Throttle
	stopping chan struct{} // closed when Run is to end
	timed    bool          // this member may have timeLock; used by First

	mu   sync.Mutex
	ends event.Position // of the journals of other members, as last known
}

// Times of Run.
const (
	// peersEvery is how often journals of members that have joined are looked for.
	peersEvery = 5 * time.Second
	// dutyEvery is how often the other members are looked at, and a lock is tried that another one
	// has.
	dutyEvery = time.Second
)

// Join makes the bus that of a member of a cluster. It is called before any request is served, and
// before the reactor has rules; Run then does what there is to do.
func (r *Bus) Join(ctx context.Context, o MemberOptions) (*Member, error) {
	m := &Member{opts: o, events: r, ends: event.Position{}, stopping: make(chan struct{})}
	m.duties.changed = make(chan struct{})
	r.SetMirrors(o.Name, m.runs)
	if m.lease = o.Lease; m.lease == nil {
		table, err := r.tables.get(ctx, "leases")
		if err != nil {
			return nil, err
		}
		m.lease = lease.New(o.Name, table, r.log)
	}
	r.member, r.positions.member = m, m
	r.dead.join(m)
	if err := m.addPeers(ctx); err != nil {
		return nil, err
	}
	for _, one := range r.Mirrors() {
		_, _ = m.last(ctx, one)
	}
	return m, nil
}

// runs reports whether another member is running.
func (m *Member) runs(name string) bool { return slices.Contains(m.opts.Others(), name) }

// briefTime is how long an answer may take that can be done without: nobody can tell about a
// journal while a leader for it is elected, and a daemon that waits for that seems not to serve.
const briefTime = time.Second

// brief limits a question to another member's journal. A single master asks its own store.
func (m *Member) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	if m == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, briefTime)
}

// last returns the newest sequence of the journal of another master, or that which was last known
// if the members cannot tell at present.
func (m *Member) last(ctx context.Context, of *journal.Mirror) (uint64, error) {
	if m == nil {
		return of.Last(ctx)
	}
	once, cancel := m.brief(ctx)
	defer cancel()
	seq, err := of.Last(once)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.ends[of.Name] = seq
	}
	if known, ok := m.ends[of.Name]; ok && ctx.Err() == nil {
		return known, nil
	}
	return seq, err
}

// timeLock is the lock of the member that does what the cluster does by time.
const timeLock = "time"

// First reports whether this member does what the cluster does by time: the first one of those that
// run, by name. Members that do not hear each other would each be the first, and one that is cut off
// has its lease for some seconds more, so it also takes a lock. That is stored at each call, since
// whoever cannot do that may not know what the others know. The error means that it is not known now, as
// during an election: it is known again when the table answers, or this member has no lease any more. Calls must
// not overlap.
func (m *Member) First(ctx context.Context) (bool, error) {
	first := !slices.ContainsFunc(m.opts.Others(), func(other string) bool { return other < m.opts.Name })
	if !m.lease.Has() {
		m.timed = false // the lock of an earlier lease is nobody's
	}
	if !m.lease.Has() || !first && !m.timed {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	lock, err := m.lease.Acquire(ctx, timeLock)
	var held *lease.HeldError
	m.timed = !errors.As(err, &held)
	if err == nil && !first { // the other one waits for it
		lock.Release(ctx)
		m.timed = ctx.Err() != nil
	}
	if !m.timed || !first || !m.lease.Has() {
		return false, nil
	}
	return err == nil, err
}

// addPeers adds the journals of members that are not known yet.
func (m *Member) addPeers(ctx context.Context) error {
	list, err := m.events.journal.NewPeers(ctx, func(name string) bool {
		return slices.ContainsFunc(m.events.Mirrors(), func(known *journal.Mirror) bool { return known.Name == name })
	})
	for _, one := range list {
		m.events.AddMirror(one)
	}
	return err
}

// Meet makes sure that the journal of each member that runs is known: what is shown without it would
// lack its events. It asks only if one is missing: that of a member that has just joined. Without a cluster
// it does nothing.
func Meet(ctx context.Context, r *Bus) error {
	m := r.member
	if m == nil {
		return nil
	}
	known := r.Mirrors()
	for _, name := range m.opts.Others() {
		if !slices.ContainsFunc(known, func(one *journal.Mirror) bool { return one.Name == name }) {
			return m.addPeers(ctx)
		}
	}
	return nil
}

// Run keeps the lease of this member, and does what it has to do for itself and for others, until
// ctx ends. It returns when nothing of that is under way.
func (m *Member) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { close(m.stopping) })()
	leased, resign := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.lease.Run(leased)
	}()
	m.duties.running.Go(func() { m.own(ctx) })
	m.duties.running.Go(func() { m.others(ctx) })
	m.duties.running.Go(func() { m.watchPeers(ctx) })
	m.duties.running.Go(func() { m.events.dead.watch(ctx) })
	m.duties.running.Wait()
	resign() // not before its handlers have ended: others may take over at once
	<-ended
}

func (m *Member) watchPeers(ctx context.Context) {
	tick := time.NewTicker(peersEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := m.addPeers(ctx); err != nil && ctx.Err() == nil {
			m.throttle.Log(m.events.log, slog.LevelWarn, "peers", 1, "the journals of the other members cannot be listed", "err", err)
		}
		for _, one := range m.events.Mirrors() {
			_, _ = m.last(ctx, one) // remembered for a time in which nobody can tell
		}
	}
}
