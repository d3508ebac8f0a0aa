package accord

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/pki"
)

// Table stores decisions: a table of the journal.
type Table interface {
	Keep(ctx context.Context, key string, value []byte) error
	Remove(ctx context.Context, key string) error
	Each(ctx context.Context, f func(key string, value []byte)) error
}

// Mirrored is the mirror of the other master's table.
type Mirrored interface {
	// Watch calls f for each present entry, and then for each new one, until ctx ends or the
	// mirror can no longer be read. The value of a removed entry is nil.
	Watch(ctx context.Context, f func(key string, value []byte)) error
}

// Options are the settings of a Follower; all are required.
type Options struct {
	Name    string // of the own journal
	Own     Table  // this master's decisions; the other one mirrors them
	Agreed  Table  // what is in force here
	Keys    *keyring.Keyring
	Accepts bool // accept here what the other master has accepted or issued
	Log     *slog.Logger
}

// entry is an entry in Own.
type entry struct {
	Decision
	Key   string          `json:"key,omitempty"`   // the public key, PEM
	Token json.RawMessage `json:"token,omitempty"` // as in the store of tokens
	By    string          `json:"by,omitempty"`    // who decided, for people
	Dir   string          `json:"dir,omitempty"`   // the key directory with which a member decided, see stamp
	At    time.Time       `json:"at"`              // when, for people: clocks decide nothing
	Until time.Time       `json:"until,omitzero"`  // when a token expires
	Rule  bool            `json:"rule,omitempty"`  // a rule on new keys has decided, and no person
	Tells string          `json:"tells,omitempty"` // the member whose acceptance it takes back, which tells of it; "" for By
	size  int             // bytes of the entry as received
}

// over reports whether it is about a token that has certainly expired.
func (e entry) over(now time.Time) bool {
	return !e.Until.IsZero() && e.Until.Before(now.Add(-clocks))
}

// agreement is an entry in Agreed: what was in force at the last look, and the N of the other
// master's decision that was taken into account.
type agreement struct {
	Act  Act    `json:"act"`
	Of   string `json:"of,omitempty"`
	Upto uint64 `json:"upto,omitempty"`
	// Next is the N of the refusal of the other master that is being applied: if the daemon
	// stops in between, Next distinguishes that refusal from one that was made here. Then is what it decides.
	Next  uint64 `json:"next,omitempty"`
	Then  Act    `json:"then,omitempty"`
	Until int64  `json:"until,omitempty"` // when a token expires, in seconds
	// Lost is set if that was in another key directory than the present one, see regain.
	Lost bool  `json:"lost,omitempty"`
	At   int64 `json:"at,omitempty"` // since when, in seconds: the oldest are forgotten first
}

// refusal reports whether it is a refusal without an entry in the key store.
func (a Act) refusal() bool { return a == Delete || a == Revoke || a == Withdrawn }

// Limits of what the other master can cause here.
const (
	// maxEntry limits one entry: the longest possible key, and a token with many groups.
	maxEntry = 64 << 10
	// maxHeard limits all received entries together; its mirror has the same limit.
	maxHeard = 64 << 20
	// mostThings is how many new keys and tokens it may bring: twenty times the largest fleet
	// that one master is meant for. The same number of refusals is remembered.
	mostThings = 200_000
)

// Follower holds the decisions of both masters, as known here. Run applies them.
type Follower struct {
	opts      Options
	throttle  logging.Throttle
	tokens    *Tokens // nil unless Tokens was called
	wake      chan struct{}
	most      int       // mostThings
	made      made      // what rules have decided here and Own does not have yet
	lifts     allowance // for changes made here for the other master, except refusals
	failed    []string  // what failed and is tried again; used by Run
	directory *directory
	todo      map[string]bool // what is due and not done yet; used by Run
	followed  followedLast

	mu     sync.Mutex // guards the next fields; not held over I/O except that of Own, whose order matters
	own    map[string]entry
	agreed map[string]agreement
	theirs map[string]entry
	heard  int               // bytes of theirs
	missed bool              // not all of its decisions did fit
	passed map[string]uint64 // N of deletions of what was never here
	n      int               // how many entries of agreed the other master has brought
	peer   string            // name of the other journal, "" before the first contact
	follow func(context.Context)
	last   func(context.Context) // the latest value of follow

	due marks
}

// marks are what must be checked again. Their lock is never held over I/O: code that cuts
// connections marks keys first.
type marks struct {
	mu   sync.Mutex
	keys map[string]bool
	all  bool
}

func (m *marks) mark(keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		m.keys = map[string]bool{}
	}
	for _, key := range keys {
		m.keys[key] = true
	}
}

func (m *marks) markAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = true
}

func (m *marks) take() (keys map[string]bool, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys, all = m.keys, m.all
	m.keys, m.all = nil, false
	return keys, all
}

// Open reads the stored decisions.
func Open(ctx context.Context, o Options) (*Follower, error) {
	l := &Follower{opts: o, made: made{all: map[string]madeOne{}}, wake: make(chan struct{}, 1), most: mostThings, own: map[string]entry{}, agreed: map[string]agreement{}, todo: map[string]bool{}, due: marks{all: true}}
	l.clear("")
	var bad error
	note := func(key string, err error) {
		if err != nil {
			bad = cmp.Or(bad, fmt.Errorf("what was decided about %.80q cannot be read: %w", key, err))
		}
	}
	err := o.Own.Each(ctx, func(key string, value []byte) {
		var e entry
		note(key, json.Unmarshal(value, &e))
		l.own[key] = e
	})
	if err != nil {
		return nil, err
	}
	var stamp []byte
	err = o.Agreed.Each(ctx, func(key string, value []byte) {
		if key == directoryKey {
			stamp = bytes.Clone(value)
			return
		}
		var a agreement
		note(key, json.Unmarshal(value, &a))
		l.agreed[key] = a
	})
	if err := cmp.Or(err, bad); err != nil {
		return nil, err
	}
	return l, l.openDirectory(ctx, stamp)
}

// openDirectory finds out whether what is in force is about the present key directory. Before there was a
// stamp, it is.
func (l *Follower) openDirectory(ctx context.Context, stamp []byte) (err error) {
	path := filepath.Join(l.opts.Keys.Store.Dir(), mirrorFile)
	if l.directory, err = openDirectory(path, stamp, l.opts.Agreed); err != nil {
		return err
	}
	if l.directory.fresh && stamp != nil {
		l.opts.Log.Warn("the key directory is new, or an older copy: what it lacks was not deleted, and what the masters have refused stays refused")
		for key, a := range l.agreed {
			if _, ok := nameOf(key); !ok {
				continue
			}
			a.Lost = true
			if err := l.agree(ctx, key, a); err != nil {
				return err
			}
		}
	}
	return l.directory.renew(ctx)
}

// renew makes copies of the key directory that were made before the latest changes old ones.
func (l *Follower) renew(ctx context.Context) {
	if err := l.directory.update(ctx); err != nil && ctx.Err() == nil {
		l.complain("directory", "a copy of the key directory that is made now would not be recognised as old", err)
	}
}

// clear forgets what was received, and sets the name of the other master. The caller holds mu,
// or is the only user of l.
func (l *Follower) clear(name string) {
	l.peer, l.theirs, l.heard, l.missed, l.passed = name, map[string]entry{}, 0, false, map[string]uint64{}
}

// rewatch is the pause before an unreadable mirror is read again.
const rewatch = time.Second

// Follow reads from now on the decisions of the master whose journal has this name, from the
// mirror of its table.
func (l *Follower) Follow(name string, table Mirrored) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name != l.peer {
		l.clear(name)
		l.due.markAll()
	}
	l.follow = func(ctx context.Context) {
		for {
			err := table.Watch(ctx, func(key string, value []byte) { l.hear(name, key, value) })
			if ctx.Err() == nil && l.throttle.First("watch", time.Now()) {
				l.opts.Log.Warn("what the other master decides about keys and tokens cannot be read for the moment", "master", name, "err", err)
			}
			select {
			case <-time.After(rewatch):
			case <-ctx.Done():
				return
			}
		}
	}
	l.last = l.follow
	l.signal()
}

// Ended is called when there is no other master any more: its further decisions do not count,
// nor those that could not be applied yet.
func (l *Follower) Ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer == "" {
		return
	}
	l.clear("")
	l.follow = func(context.Context) {}
	l.last = nil
	l.signal()
}

// hear handles an entry of the other master. An unreadable one is ignored: the earlier one then
// counts.
func (l *Follower) hear(from, key string, value []byte) {
	var e entry
	var err error
	switch {
	case len(key) > maxKey:
		key, err = key[:maxKey], errors.New("the name is too long")
	case len(value) > maxEntry:
		err = fmt.Errorf("it has %d bytes", len(value))
	case value == nil:
		e.Act = Withdrawn
	default:
		if err = json.Unmarshal(value, &e); err == nil && (e.Act.weight() == 0 && e.Act != Withdrawn || e.N == 0) {
			err = fmt.Errorf("there is no act %.20q", e.Act)
		}
	}
	if err != nil {
		l.complain("unreadable", "what the other master has decided cannot be read", err, "master", from, "key", key)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if from != l.peer {
		return
	}
	if e.Act == Withdrawn && !l.yields(key, e) || e.over(time.Now()) {
		l.drop(key)
		return
	}
	e.size = len(key) + len(value)
	if !l.room(key, e.size) {
		l.missed = true
		l.complain("room", "the other master has decided about more than is remembered: the rest does not count until there is room", errMany, "master", from)
		return
	}
	l.drop(key)
	l.theirs[key] = e
	l.heard += e.size
	l.due.mark(key)
	l.signal()
}

// yields reports whether the other master has withdrawn its decision in favour of the latest one
// of this master, which then counts. An earlier one of the other master may be in force here. The
// caller holds mu.
func (l *Follower) yields(key string, e entry) bool {
	own, known := l.own[key]
	return known && own.Act.weight() > 0 && e.Seen == own.N && e.Of == l.opts.Name
}

// room reports whether a decision of the other master is stored. Decisions about what exists
// here always are, however many there are about other things: the rules for new keys there let
// anybody cause those, and a refusal must not get lost. The caller holds mu.
func (l *Follower) room(key string, size int) bool {
	old, known := l.theirs[key]
	_, ours := l.own[key]
	_, agreed := l.agreed[key]
	return known || ours || agreed || len(l.theirs) < l.most && l.heard-old.size+size <= maxHeard
}

// drop forgets the other master's decision about one key or token. The caller holds mu.
func (l *Follower) drop(key string) {
	l.heard -= l.theirs[key].size
	delete(l.theirs, key)
}

// signal wakes Run.
func (l *Follower) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Changed is called when keys of minions have changed here, by anybody.
func (l *Follower) Changed(changes []keyring.Change) {
	for _, c := range changes {
		if c.Rule != "" {
			l.made.changed(c, l.most)
		}
		if c.After == pki.Accepted {
			l.followed.drop(keyOf(c.Name))
		}
		l.due.mark(keyOf(c.Name))
	}
	l.signal()
}

const (
	// again is how often failed changes are tried again.
	again = time.Minute
	// looks is after how many of those pauses everything is checked again.
	looks = 30
)

// Run applies the decisions until ctx ends. When it returns, nothing of it runs.
func (l *Follower) Run(ctx context.Context) {
	var watch sync.WaitGroup
	end := func() {}
	defer func() { end(); watch.Wait() }()
	tick := time.NewTicker(again)
	defer tick.Stop()
	for ticks := 1; ; {
		if follow := l.gather(); follow != nil {
			end()
			watch.Wait()
			inner, cancel := context.WithCancel(ctx)
			end = cancel
			watch.Go(func() { follow(inner) })
		}
		if l.round(ctx, acceptTime) {
			continue
		}
		select {
		case <-l.wake:
		case <-tick.C:
			l.retry(ticks%looks == 0)
			l.prune(ctx)
			ticks++
		case <-ctx.Done():
			return
		}
	}
}

// retry marks failed changes to be checked again, and reads missed entries again if there is
// room now.
func (l *Follower) retry(all bool) {
	l.due.mark(l.failed...)
	l.failed = nil
	if all {
		l.due.markAll()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed && len(l.theirs) < l.most && l.heard < maxHeard/2 {
		l.missed, l.follow = false, l.last
	}
}

// round applies what is due: refusals first, and the rest for the given time. It reports whether
// something is left.
func (l *Follower) round(ctx context.Context, rest time.Duration) (left bool) {
	refusals, others := l.sorted()
	l.resolveAll(ctx, refusals, time.Time{})
	l.resolveAll(ctx, others, time.Now().Add(rest))
	return len(l.todo) > 0 && ctx.Err() == nil
}

// renewEvery is after how many keys, at most, the key directory gets another mark if something has changed.
const renewEvery = 64

// resolveAll handles keys and tokens until a time, if one is given.
func (l *Follower) resolveAll(ctx context.Context, keys []string, until time.Time) {
	defer l.renew(ctx)
	for i, key := range keys {
		if i%renewEvery == renewEvery-1 {
			l.renew(ctx)
		}
		if ctx.Err() != nil || !until.IsZero() && time.Now().After(until) {
			return
		}
		delete(l.todo, key)
		l.resolve(ctx, key)
	}
}

// gather adds what is due to todo. It returns what must be followed from now on, if that has changed.
func (l *Follower) gather() (follow func(context.Context)) {
	marked, all := l.due.take()
	keys := slices.Collect(maps.Keys(marked))
	l.mu.Lock()
	follow, l.follow = l.follow, nil
	if all {
		keys = slices.AppendSeq(keys, maps.Keys(l.own))
		keys = slices.AppendSeq(keys, maps.Keys(l.theirs))
		keys = slices.AppendSeq(keys, maps.Keys(l.agreed))
		l.count()
	}
	l.mu.Unlock()
	if all {
		stored, err := l.keys().decided()
		if err != nil {
			l.complain("list", "the key store cannot be read", err)
		}
		keys = slices.AppendSeq(keys, maps.Keys(stored))
	}
	for _, key := range keys {
		l.todo[key] = true
	}
	return follow
}

// sorted returns what is to do: first what may be a refusal, of this master or the other one. Nothing
// that either refuses may wait for what they accept.
func (l *Follower) sorted() (refusals, rest []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.todo {
		if their, base := l.theirs[key], l.agreed[key]; base.Act == Accept || their.Act.weight() > Accept.weight() && their.N != base.Upto {
			refusals = append(refusals, key)
		} else {
			rest = append(rest, key)
		}
	}
	slices.Sort(refusals)
	slices.Sort(rest)
	return refusals, rest
}

// count counts what the other master has brought. The caller holds mu.
func (l *Follower) count() {
	l.n = 0
	for key, a := range l.agreed {
		if _, ours := l.own[key]; !ours && a.Act != Delete {
			l.n++
		}
	}
}

func (l *Follower) brought() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// keys is the key store.
func (l *Follower) keys() keystore { return keystore{l.opts.Keys} }

// resolve handles one key or token.
func (l *Follower) resolve(ctx context.Context, key string) {
	var err error
	if name, ok := nameOf(key); ok {
		err = l.resolveKey(ctx, key, name)
		if errors.Is(err, pki.ErrGone) { // it has been changed meanwhile
			err = l.resolveKey(ctx, key, name)
		}
		if err == nil {
			l.keys().EndRefusal(name)
		}
	} else if token, ok := tokenOf(key); ok && l.tokens != nil {
		err = l.resolveToken(ctx, key, token)
	}
	if err != nil && ctx.Err() == nil {
		l.failed = append(l.failed, key)
		l.complain("resolve", "what the other master has decided is not in force here", err, "what", key)
	}
}

// maxComplaints is for how many things of one kind an error is logged in a minute.
const maxComplaints = 5

// complain logs an error, within that limit.
func (l *Follower) complain(kind, what string, err error, args ...any) {
	l.throttle.Log(l.opts.Log, slog.LevelWarn, kind, maxComplaints, what, append(args, "err", err)...)
}

// at returns what is known about one key or token.
func (l *Follower) at(key string) (own, other Side, base agreement, e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, base = l.theirs[key], l.agreed[key]
	if n := l.passed[key]; base.Act == "" && n != 0 {
		base.Of, base.Upto = l.peer, n
	}
	return Side{l.opts.Name, l.own[key].Decision}, Side{l.peer, e.Decision}, base, e
}

// decide stores a decision made here, with knowledge of what base says.
func (l *Follower) decide(ctx context.Context, key string, base agreement, e entry) error {
	e.N, e.Of, e.Seen = newN(), base.Of, base.Upto
	return l.keepOwn(ctx, key, e)
}

// newN returns a new identifier of a decision.
func newN() uint64 {
	for {
		if n := rand.Uint64(); n != 0 {
			return n
		}
	}
}

func (l *Follower) keepOwn(ctx context.Context, key string, e entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.At = time.Now().UTC()
	value, err := json.Marshal(e)
	if err == nil {
		err = l.opts.Own.Keep(ctx, key, value)
	}
	if err == nil {
		l.own[key] = e
	}
	return err
}

// withdraw takes back an acceptance that a refusal of the other master has ended, so that it
// does not count when that refusal is forgotten. It names that refusal.
func (l *Follower) withdraw(ctx context.Context, key string, other Side) error {
	l.mu.Lock()
	n := l.own[key].N
	l.mu.Unlock()
	return l.keepOwn(ctx, key, entry{Decision: Decision{Act: Withdrawn, N: n, Seen: other.N, Of: other.Name}})
}

// agree stores what is in force.
func (l *Follower) agree(ctx context.Context, key string, a agreement) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, known := l.agreed[key]
	a.At = old.At
	if known && old == a {
		return nil
	}
	if a.Act != old.Act {
		l.directory.changed()
	}
	a.At = time.Now().Unix()
	value, err := json.Marshal(a)
	if err == nil {
		err = l.opts.Agreed.Keep(ctx, key, value)
	}
	if err == nil {
		l.agreed[key] = a
		if a.Next == 0 {
			l.followed.drop(key)
		}
		if _, ours := l.own[key]; !ours && !known {
			l.n++
		}
	}
	return err
}

// pass remembers that the other master has deleted what was never here: a later acceptance here
// is then made with that knowledge. It is only in memory, since there may be any number; if it
// is lost, such an acceptance must be made twice.
func (l *Follower) pass(key string, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.passed) >= l.most {
		clear(l.passed)
	}
	l.passed[key] = n
}

// done forgets a decision of the other master that needs no more work, unless a newer one has
// arrived.
func (l *Follower) done(key string, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.theirs[key].N == n {
		l.drop(key)
	}
}
