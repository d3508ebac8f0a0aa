package lease

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/uptime"
)

// Times of a lease. After the leader of the table was killed, nobody can renew until another one
// is elected, for 11 s at most. That must not end the leases of members that are well.
const (
	renewEvery = time.Second
	renewTime  = 3 * time.Second        // for one request to the table
	renewAgain = 250 * time.Millisecond // after a failed one
	// stopAfter is how long after its last renewal, counted from before the request, a member
	// stops what it does under its locks.
	stopAfter = 12500 * time.Millisecond
	// takeAfter is how long after an observed renewal others take its locks. In the time between,
	// the member ends what is under way.
	takeAfter = 15 * time.Second
)

// Longest is how long a member that is gone may have its locks.
const Longest = takeAfter + renewEvery

// Table is a shared table, which its leader alone answers about. journal.Table is one.
type Table interface {
	Entry(ctx context.Context, key string) (journal.TableEntry, error)
	// Update stores an entry that is at this revision, 0 for a new one.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
}

// Holder is a member during one of its leases. The zero value is nobody.
type Holder struct {
	Member string `json:"member,omitempty"`
	// Term is a random text for the time in which it has renewed without a gap.
	Term string `json:"term,omitempty"`
}

// record is the entry of a member. Without a term, its lease has ended.
type record struct {
	Term string `json:"term"`
	N    uint64 `json:"n"`              // counts renewals, so that each is a change
	Look string `json:"look,omitempty"` // a random text of a member that has stored it again
}

// Member renews the lease of this member, and judges those of others. Its methods may be called
// concurrently.
type Member struct {
	name  string
	table Table
	log   *slog.Logger
	up    func() uptime.Moment // uptime.Now

	mu      sync.Mutex
	term    *term                // nil without a lease
	changed chan struct{}        // closed when term changes
	seen    map[string]*sighting // by member
	over    map[Holder]bool      // whose lease has ended for sure, which is for good
}

// term is one lease.
type term struct {
	Holder
	ctx context.Context // ends with it
	end context.CancelFunc

	last atomic.Int64 // the uptime.Moment of its last renewal
}

// expire ends a lease whose time is over by a clock that goes on while the machine is suspended: the timer that ends
// it otherwise stands still then. It reports whether the lease has ended.
func (t *term) expire(now uptime.Moment) bool {
	if now.Sub(uptime.Moment(t.last.Load())) > stopAfter {
		t.end()
	}
	return t.ctx.Err() != nil
}

// sighting is what was last observed of another member.
type sighting struct {
	revision uint64
	since    time.Time // when it was first seen at this revision
}

// maxOver is how many holders are remembered whose lease has ended.
const maxOver = 1000

// New returns the lease of the member of this name, which Run renews.
func New(name string, table Table, log *slog.Logger) *Member {
	return &Member{name: name, table: table, log: log, up: uptime.Now, changed: make(chan struct{}), seen: map[string]*sighting{}, over: map[Holder]bool{}}
}

func memberKey(name string) string { return "member/" + name }

// now returns the present lease, nil if there is none, and a channel that is closed when that
// changes.
func (m *Member) now() (*term, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.term != nil && m.term.expire(m.up()) {
		return nil, m.changed
	}
	return m.term, m.changed
}

func (m *Member) set(t *term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.term = t
	close(m.changed)
	m.changed = make(chan struct{})
}

// Holder returns this member under its present lease, and a context that ends with the lease. It
// waits for a lease until ctx ends.
func (m *Member) Holder(ctx context.Context) (Holder, context.Context, error) {
	for {
		t, changed := m.now()
		if t != nil {
			return t.Holder, t.ctx, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Holder{}, nil, context.Cause(ctx)
		}
	}
}

// Has reports whether this member has a lease at present.
func (m *Member) Has() bool {
	t, _ := m.now()
	return t != nil
}

// Run keeps a lease until ctx ends. Then it gives the lease up at once, so that others need not
// wait: what is done under its locks must have ended before.
func (m *Member) Run(ctx context.Context) {
	for warned := false; ctx.Err() == nil; {
		had, err := m.lead(ctx)
		if errors.Is(err, journal.ErrChanged) {
			err = nil // another member has looked at the record: it is read again
		}
		if err != nil && ctx.Err() == nil && (had || !warned) {
			m.log.Warn("this member has no lease: others do for it what only one may do", "err", err)
			warned = true
		}
		backoff.Sleep(ctx, renewAgain)
	}
}

// lead begins a lease, and renews it until it has ended; had is false if it did not begin.
func (m *Member) lead(ctx context.Context) (had bool, err error) {
	revision, err := m.read(ctx, memberKey(m.name), new(record))
	if err != nil {
		return false, err
	}
	t := &term{Holder: Holder{Member: m.name, Term: rand.Text()}}
	begun := time.Now()
	t.last.Store(int64(m.up()))
	if revision, err = m.write(ctx, memberKey(m.name), record{Term: t.Term}, revision); err != nil {
		return false, err
	}
	t.ctx, t.end = context.WithCancel(context.WithoutCancel(ctx))
	m.set(t)
	m.log.Info("this member has a lease")
	defer m.set(nil)
	defer t.end()
	return true, m.renew(ctx, t, revision, begun)
}

// errLapsed ends a lease that could not be renewed in time.
var errLapsed = errors.New("the lease could not be renewed in time: most members of the cluster are not reached")

// errTaken ends a lease that another member has ended.
var errTaken = errors.New("another member has ended the lease, since it was not renewed in time")

// renew renews a lease until it has ended. last is a time at which it was surely in force.
func (m *Member) renew(ctx context.Context, t *term, revision uint64, last time.Time) error {
	lapse := time.AfterFunc(time.Until(last.Add(stopAfter)), t.end)
	defer lapse.Stop()
	for n, pause := uint64(1), renewEvery; ; n++ {
		if !backoff.Sleep(ctx, pause) {
			return m.resign(ctx, t, revision)
		}
		if t.expire(m.up()) {
			return errLapsed
		}
		begun, up := time.Now(), m.up()
		got, err := m.write(ctx, memberKey(m.name), record{Term: t.Term, N: n}, revision)
		switch {
		case err == nil:
			if t.expire(m.up()) || !lapse.Reset(time.Until(begun.Add(stopAfter))) {
				return errLapsed // it had just ended
			}
			t.last.Store(int64(up))
			revision, pause = got, renewEvery
		case errors.Is(err, journal.ErrChanged):
			got, err = m.still(ctx, t)
			switch {
			case errors.Is(err, errTaken):
				return err
			case err != nil: // the lease may be in force all the same: it is asked again, as long as that can be
				pause = renewAgain
			default:
				revision, pause = got, 0
			}
		default:
			pause = renewAgain
		}
	}
}

// still returns the revision of the own entry if it is of this lease: a renewal without an answer
// may have been stored.
func (m *Member) still(ctx context.Context, t *term) (uint64, error) {
	var r record
	revision, err := m.read(ctx, memberKey(m.name), &r)
	if err == nil && r.Term != t.Term {
		err = errTaken
	}
	return revision, err
}

// resign ends the lease in good order.
func (m *Member) resign(ctx context.Context, t *term, revision uint64) error {
	ctx = context.WithoutCancel(ctx)
	_, err := m.write(ctx, memberKey(m.name), record{}, revision)
	if errors.Is(err, journal.ErrChanged) { // by a renewal that was cancelled
		if revision, err = m.still(ctx, t); err == nil {
			_, err = m.write(ctx, memberKey(m.name), record{}, revision)
		}
	}
	return err
}

// Live reports whether a holder may still be at work. It ends the lease of a member that was not
// seen to renew for takeAfter.
func (m *Member) Live(ctx context.Context, h Holder) (bool, error) {
	if h == (Holder{}) {
		return false, nil
	}
	if h.Member == m.name {
		t, _ := m.now()
		return t != nil && t.Holder == h, nil
	}
	for range lookTimes {
		live, err := m.judge(ctx, h)
		if !errors.Is(err, journal.ErrChanged) {
			return live, err
		}
	}
	return true, nil // it is renewed
}

// lookTimes is how often the record of a member is read again that changes meanwhile.
const lookTimes = 5

// judge is Live for another member. The error is ErrChanged if its record changes meanwhile.
func (m *Member) judge(ctx context.Context, h Holder) (bool, error) {
	if m.isOver(h) {
		return false, nil
	}
	r, revision, since, err := m.look(ctx, h.Member)
	if err != nil {
		return true, err
	}
	late := r.Term == h.Term
	if late && time.Since(since) < takeAfter {
		return true, nil
	}
	if late {
		r = record{} // it ends here
	}
	// Another term than the holder's may be an older one: a server that led before goes on to answer for
	// some seconds. Only the leader stores the record anew at its revision.
	r.Look = rand.Text()
	if _, err := m.write(ctx, memberKey(h.Member), r, revision); err != nil {
		return true, err
	}
	m.setOver(h)
	if late {
		m.log.Warn("the lease of another member was ended, since it does not renew it", "member", h.Member)
	}
	return false, nil
}

func (m *Member) isOver(h Holder) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over[h]
}

func (m *Member) setOver(h Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.over) >= maxOver {
		clear(m.over) // they are found out again
	}
	m.over[h] = true
}

// Look observes the lease of another member, so that a later Live need not wait for takeAfter.
func (m *Member) Look(ctx context.Context, member string) {
	_, _, _, _ = m.look(ctx, member) // an error means that nothing was observed
}

// look reads the entry of a member, and since when it has been at that revision as far as known
// here.
func (m *Member) look(ctx context.Context, member string) (r record, revision uint64, since time.Time, err error) {
	if revision, err = m.read(ctx, memberKey(member), &r); err != nil {
		return r, 0, since, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[member]
	if s == nil || s.revision != revision {
		s = &sighting{revision: revision, since: time.Now()}
		m.seen[member] = s
	}
	return r, revision, s.since, nil
}

// read reads an entry into v, which stays as it is if there is none.
func (m *Member) read(ctx context.Context, key string, v any) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	e, err := m.table.Entry(ctx, key)
	if err == nil && e.Value != nil {
		err = json.Unmarshal(e.Value, v)
	}
	return e.Revision, err
}

func (m *Member) write(ctx context.Context, key string, v any, revision uint64) (uint64, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	return m.table.Update(ctx, key, b, revision)
}
