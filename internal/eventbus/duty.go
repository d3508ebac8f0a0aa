package eventbus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/lease"
)

// duties are what this member does at present: for each journal whose lock it has, the handlers of
// its events.
type duties struct {
	running sync.WaitGroup // goroutines of Run

	mu      sync.Mutex
	list    []*duty
	changed chan struct{} // closed when list changes
}

// duty is the handling of the events of one journal.
type duty struct {
	journal *Handled
	feed    context.Context // ends when it takes no more events
	life    context.Context // ends when everything under way has to end
	rest    func()
	stop    func()
	users   sync.WaitGroup // calls of serve; counted under the lock of duties while it is listed
}

// drainTime is how long the events that are under way may take when the member of their journal is
// back. The others it then handles again.
const drainTime = 20 * time.Second

// awayTime is how long a member must be away before another one handles its events: a restart takes
// less, and a member that has just started does not know the others yet.
const awayTime = 5 * time.Second

// dutyLock is the name of the lock of a journal.
func dutyLock(journal string) string { return "journal/" + journal }

// own handles the events of the own journal, whenever no other member does.
func (m *Member) own(ctx context.Context) {
	for ctx.Err() == nil {
		if lock, _ := m.take(ctx, m.opts.Name); lock != nil {
			m.perform(ctx, &Handled{events: m.events, member: m, name: m.opts.Name, from: m.events.journal}, lock, func() bool { return false })
		}
		backoff.Sleep(ctx, dutyEvery)
	}
}

// others handles the events of members that are gone, if this is the first one of those that run.
func (m *Member) others(ctx context.Context) {
	tick := time.NewTicker(dutyEvery)
	defer tick.Stop()
	busy := map[string]chan struct{}{} // by journal; closed when it has ended
	ran := map[string]time.Time{}      // by member: when it was last seen, or first missed
	unsure := map[string]bool{}        // by journal: this member may have its lock without knowing it
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, one := range m.events.Mirrors() {
			m.lease.Look(ctx, one.Name)
			if ran[one.Name].IsZero() || m.runs(one.Name) {
				ran[one.Name] = time.Now()
			}
			select {
			case <-busy[one.Name]:
				delete(busy, one.Name)
			default:
			}
			wanted := time.Since(ran[one.Name]) >= awayTime && m.standsInFor(one.Name)
			if busy[one.Name] != nil || !wanted && !unsure[one.Name] {
				continue
			}
			lock, sure := m.take(ctx, one.Name)
			unsure[one.Name] = !sure
			if lock != nil && !wanted { // the member is back, or another one stands in for it, and waits for the lock
				lock.Release(ctx)
				continue
			}
			if lock == nil {
				continue
			}
			m.events.log.Warn("this member handles the events of one that is gone", "member", one.Name)
			done := make(chan struct{})
			busy[one.Name] = done
			m.duties.running.Go(func() {
				defer close(done)
				m.perform(ctx, &Handled{events: m.events, member: m, name: one.Name, from: one}, lock, func() bool { return m.runs(one.Name) })
			})
		}
	}
}

// standsInFor reports whether the member of a journal is gone, and this is the first of those that
// run, by name.
func (m *Member) standsInFor(name string) bool {
	for _, other := range m.opts.Others() {
		if other == name || other < m.opts.Name {
			return false
		}
	}
	return true
}

// take takes the lock of a journal, nil if it cannot. With sure false this member may have it all the same.
func (m *Member) take(ctx context.Context, name string) (lock *lease.Lock, sure bool) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	lock, err := m.lease.Acquire(ctx, dutyLock(name))
	var held *lease.HeldError
	switch {
	case err == nil:
		sure = true
	case errors.As(err, &held):
		sure = true
		m.events.log.Debug("another member handles the events of a journal", "journal", name, "member", held.Holder.Member)
	case ctx.Err() == nil:
		m.throttle.Log(m.events.log, slog.LevelWarn, "take", 1, "the handlers of events wait", "journal", name, "err", err)
	}
	return lock, sure
}

// perform handles the events of a journal until ctx ends, the lock is lost, or over returns true.
func (m *Member) perform(ctx context.Context, j *Handled, lock *lease.Lock, over func() bool) {
	d := &duty{journal: j}
	d.life, d.stop = context.WithCancel(lock.Context())
	defer d.stop()
	d.feed, d.rest = context.WithCancel(d.life)
	defer context.AfterFunc(ctx, d.rest)()
	m.duties.add(d)
	for d.feed.Err() == nil && !over() {
		backoff.Sleep(d.feed, dutyEvery)
	}
	m.duties.remove(d)
	d.rest()
	limit := time.AfterFunc(drainTime, d.stop)
	defer limit.Stop()
	d.users.Wait()
	lock.Release(ctx)
}

// handler returns the member that handles the events of a journal; "" without a cluster, or if none does or it is
// not known, as during an election.
func (m *Member) handler(ctx context.Context, journal string) (by string, unknown bool) {
	if m == nil {
		return "", false
	}
	ctx, cancel := m.brief(ctx)
	defer cancel()
	by, err := m.lease.HolderOf(ctx, dutyLock(journal))
	if err != nil {
		m.events.log.Debug("the handler of a journal is not known", "journal", journal, "err", err)
	}
	return by, err != nil
}

func (s *duties) add(d *duty) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, d)
	s.tell()
}

func (s *duties) remove(d *duty) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.list {
		if one == d {
			s.list = append(s.list[:i:i], s.list[i+1:]...)
			break
		}
	}
	s.tell()
}

func (s *duties) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// join returns the duties that are not in known, each with one more user.
func (s *duties) join(known map[*duty]bool) (list []*duty, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.list {
		if !known[d] && d.feed.Err() == nil {
			d.users.Add(1)
			list = append(list, d)
		}
	}
	for d := range known {
		if d.feed.Err() != nil {
			delete(known, d)
		}
	}
	return list, s.changed
}

// Each calls serve for each journal whose events this daemon handles, and for each one that comes
// later, until ctx ends; then it waits for those calls. For a single master that is its own journal.
// When feed ends, a call takes no more events and ends when what is under way is done; when life
// ends, it ends at once.
func (r *Bus) Each(ctx context.Context, serve func(feed, life context.Context, j *Handled)) {
	if r.member == nil {
		serve(ctx, context.WithoutCancel(ctx), r.Own())
		return
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	known := map[*duty]bool{}
	for {
		list, changed := r.member.duties.join(known)
		for _, d := range list {
			known[d] = true
			calls.Go(func() {
				defer d.users.Done()
				feed, cancel := context.WithCancel(d.feed)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				serve(feed, d.life, d.journal)
			})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Own returns the own journal, for handlers.
func (r *Bus) Own() *Handled {
	h := &Handled{events: r, from: r.journal, member: r.member}
	if r.member != nil {
		h.name = r.member.opts.Name
	}
	return h
}
