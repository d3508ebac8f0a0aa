package accord

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/uptime"
)

// SharedTable is the table of decisions that all members of a cluster write: a table of the
// journal with copies.
type SharedTable interface {
	Put(ctx context.Context, key string, value []byte) error
	Entry(ctx context.Context, key string) (journal.TableEntry, error)
	Create(ctx context.Context, key string, value []byte) (uint64, error)
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	DeleteAt(ctx context.Context, key string, revision uint64) error
	RemoveAt(ctx context.Context, key string, revision uint64) error
	Watch(ctx context.Context, after uint64, f func(*journal.TableEntry) error) error
}

// SharedOptions are the settings of a Shared; all but Tell are required.
type SharedOptions struct {
	Name   string // of this member
	Dir    string // of Keys
	Table  SharedTable
	Agreed Table // what is in force here: a table of this member alone
	Keys   *keyring.Keyring
	// Tell is called when this member becomes current or stops being so, see Stale.
	Tell func(current bool)
	Log  *slog.Logger
}

// Shared is the decisions about keys that all members of a cluster make together, as known to one
// of them. There is one table; an entry is changed only by a member that knows the decision in it, or
// whose own decision refuses more. Run applies what the table says to the key store of this member.
type Shared struct {
	opts     SharedOptions
	throttle logging.Throttle
	wake     chan struct{}
	due      marks
	todo     map[string]bool // what is due and not done yet; used by Run

	agreed    *agreements
	directory *directory
	pulse     *heartbeats
	made      *made
	waits     *waits
	done      followedLast
	most      int // mostThings
	workers   int // how many keys are handled at once

	mu     sync.Mutex // guards the next fields; not held over I/O
	view   view
	passed map[string]uint64  // N of deletions of what was never here
	said   map[string]uint64  // N of decisions of this member that may be in the table
	old    map[string]bool    // accepted before this start, and not known to the table then
	failed map[string]bool    // tried again after a minute
	soon   map[string]bool    // could not be written, and is tried again after a second
	muted  bool               // the table cannot be written at the moment
	unmet  map[string]bool    // refusals that are not in force, see enforce
	lifts  allowance          // as in Follower
	reread context.CancelFunc // makes the watch begin again
}

// OpenShared reads what was in force here when the daemon last stopped.
func OpenShared(ctx context.Context, o SharedOptions) (*Shared, error) {
	s := &Shared{
		opts: o, wake: make(chan struct{}, 1), todo: map[string]bool{}, due: marks{all: true},
		most: mostThings, workers: 8, view: newView(), passed: map[string]uint64{}, said: map[string]uint64{},
		failed: map[string]bool{}, soon: map[string]bool{}, unmet: map[string]bool{},
		pulse: &heartbeats{name: o.Name, table: o.Table, tell: o.Tell, log: o.Log, stale: staleAfter, up: uptime.Now},
	}
	s.waits = newWaits(s)
	o.Keys.Room = func() bool { return roomForRules(s) }
	stored := map[string][]byte{}
	if err := o.Agreed.Each(ctx, func(key string, value []byte) { stored[key] = bytes.Clone(value) }); err != nil {
		return nil, err
	}
	var err error
	if s.directory, err = openDirectory(filepath.Join(o.Dir, directoryFile), stored[directoryKey], o.Agreed); err != nil {
		return nil, err
	}
	delete(stored, directoryKey)
	if s.directory.fresh {
		s.agreed, err = clearAgreements(ctx, o.Agreed, stored)
	} else {
		s.agreed, err = readAgreements(o.Agreed, stored)
	}
	if err == nil {
		s.old, err = unpublished(s.keys(), s.agreed)
	}
	if err == nil {
		if s.made, err = openMade(filepath.Join(o.Dir, madeFile), s.keys(), s.agreed, s.directory.fresh); err != nil {
			s.complain("told", "a restart may have repeated the events about keys that were changed without the quorum", err)
			err = nil
		}
	}
	if err == nil {
		err = s.directory.renew(ctx)
	}
	return s, err
}

// unpublished returns which keys were accepted before this start without the table knowing of it.
func unpublished(keys keystore, agreed *agreements) (map[string]bool, error) {
	decided, err := keys.decided()
	old := map[string]bool{}
	for key := range decided {
		if agreed.of(key).Upto == 0 {
			old[key] = true
		}
	}
	return old, err
}

func (s *Shared) keys() keystore { return keystore{s.opts.Keys} }

// Changed is called when keys of minions have changed here, by anybody.
func (s *Shared) Changed(changes []keyring.Change) {
	s.mu.Lock()
	for _, c := range changes {
		if c.Recalled {
			continue // it is in the table
		}
		delete(s.old, keyOf(c.Name))
		if c.After == pki.Accepted { // what refuses it from now on is decided here
			s.done.drop(keyOf(c.Name))
		}
		s.made.changed(c, s.most)
		s.waits.changed(keyOf(c.Name), c)
		if s.view.complete { // before, nothing is handled, and all is due then: anybody can cause changes
			s.due.mark(keyOf(c.Name))
		}
	}
	s.mu.Unlock()
	s.signal()
}

// signal wakes Run.
func (s *Shared) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const (
	// acceptTime is how long acceptances are carried out before it is looked for refusals, which
	// are carried out first, and how long old deletions are forgotten at once.
	acceptTime = 200 * time.Millisecond
	// retryTime is how often it is tried to write what could not be written.
	retryTime = time.Second
)

// Run applies the decisions until ctx ends. When it returns, nothing of it runs.
func (s *Shared) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { s.watch(ctx) })
	parts.Go(func() { s.pulse.run(ctx) })
	parts.Go(func() { // on its own: decisions and heartbeats must not wait for it
		for backoff.Sleep(ctx, s.waits.pause) {
			s.waits.forget(ctx)
		}
	})
	tick := time.NewTicker(retryTime)
	defer tick.Stop()
	defer saveMade(s, true)
	for ticks, old := 1, false; ; {
		if s.round(ctx, acceptTime) {
			continue
		}
		select {
		case <-s.wake:
		case <-tick.C:
			s.again(ticks%int(again/retryTime) == 0, ticks%int(looks*again/retryTime) == 0)
			if old || ticks%int(again/retryTime) == 0 {
				old = s.forgetOld(ctx, time.Now().Add(acceptTime))
			}
			saveMade(s, false)
			ticks++
		case <-ctx.Done():
			return
		}
	}
}

// watch reads the table until ctx ends.
func (s *Shared) watch(ctx context.Context) {
	after := uint64(0)
	for ctx.Err() == nil {
		inner, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		s.reread = cancel
		if after == 0 {
			s.view.begin()
		}
		s.mu.Unlock()
		err := s.opts.Table.Watch(inner, after, func(e *journal.TableEntry) error {
			if e != nil {
				after = e.Revision
			}
			s.hear(e)
			return nil
		})
		if inner.Err() != nil {
			after = 0 // it was told to begin again
		}
		cancel()
		if ctx.Err() == nil && s.throttle.First("watch", time.Now()) {
			s.opts.Log.Warn("what the masters decide about keys cannot be read for the moment", "err", err)
		}
		backoff.Sleep(ctx, rewatch)
	}
}

// again marks what has failed to be tried again.
func (s *Shared) again(failed, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := func(keys map[string]bool) {
		for key := range keys {
			s.due.mark(key)
		}
		clear(keys)
	}
	mark(s.soon)
	if failed {
		mark(s.failed)
	}
	if all {
		s.due.markAll()
		if s.view.missed && s.view.roomy(s.most) {
			s.reread() // what did not fit may fit now
		}
	}
}

// round applies what is due: refusals first, and acceptances for the given time. It reports whether
// something is left.
func (s *Shared) round(ctx context.Context, accepts time.Duration) (left bool) {
	came := s.pulse.back()
	s.mu.Lock()
	complete := s.view.complete
	s.muted = false
	s.mu.Unlock()
	if !complete {
		return false // without everything it is unknown what was decided elsewhere
	}
	s.gather()
	refusals, rest := s.sorted()
	s.resolveAll(ctx, refusals, time.Time{})
	if ctx.Err() != nil {
		return false
	}
	s.renew(ctx)
	s.inForce(came)
	s.resolveAll(ctx, rest, time.Now().Add(accepts))
	return len(s.todo) > 0 && ctx.Err() == nil
}

// renew makes copies of the key directory that were made before the latest changes old ones.
func (s *Shared) renew(ctx context.Context) {
	s.mu.Lock()
	muted := s.muted
	s.mu.Unlock()
	if muted {
		return // each attempt may take writeTime: the next round tries it
	}
	err := s.directory.update(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	if errors.Is(err, errUnwritten) {
		s.mu.Lock()
		s.muted = true
		s.mu.Unlock()
	}
	s.complain("directory", "a copy of the key directory that is made now would not be recognised as old", err)
}

// absence is after how long without heartbeats a member reads the whole table again: entries are removed
// without a trace only after forgetTime, which is longer.
const absence = 10 * time.Minute

// inForce is called when all refusals are handled that were heard before a heartbeat came back.
func (s *Shared) inForce(came moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unmet) > 0 {
		return
	}
	if s.pulse.inForce(came) > absence && s.reread != nil {
		s.reread()
	}
}

// gather adds what is due to todo.
func (s *Shared) gather() {
	keys, all := s.due.take()
	for key := range keys {
		s.todo[key] = true
	}
	if !all {
		return
	}
	for _, key := range append(s.agreed.keys(), s.waits.keys()...) {
		s.todo[key] = true
	}
	s.mu.Lock()
	for key := range s.view.rulings {
		s.todo[key] = true
	}
	s.mu.Unlock()
	entries, _, err := s.opts.Keys.Store.List()
	if err != nil {
		s.complain("list", "the key store cannot be read", err)
	}
	for _, e := range entries {
		s.todo[keyOf(e.Name())] = true
	}
}

// sorted returns what is to do: first what may be a refusal, of this master or another one. An
// acceptance may be possible only after it, and nothing may wait for acceptances.
func (s *Shared) sorted() (refusals, rest []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waiting []string
	for key := range s.todo {
		r, base := s.view.rulings[key], s.agreed.of(key)
		switch {
		case base.Act == Accept || r.Act.weight() > Accept.weight() && r.N != base.Upto:
			refusals = append(refusals, key)
		case r.Act == "" && base.Act == "":
			waiting = append(waiting, key)
		default:
			rest = append(rest, key)
		}
	}
	slices.Sort(refusals)
	slices.Sort(rest)
	slices.Sort(waiting)
	return refusals, append(rest, waiting...)
}

// resolveAll handles keys until a time, if one is given. Keys of one id are handled one after the
// other.
func (s *Shared) resolveAll(ctx context.Context, keys []string, until time.Time) {
	const batch = 64 // so that the time is kept
	for ; len(keys) > 0 && ctx.Err() == nil && (until.IsZero() || time.Now().Before(until)); keys = keys[min(batch, len(keys)):] {
		lists := make([][]string, s.workers)
		for _, key := range keys[:min(batch, len(keys))] {
			delete(s.todo, key)
			name, _ := nameOf(key)
			h := fnv.New32a()
			_, _ = h.Write([]byte(name.ID)) // it never fails
			n := h.Sum32() % uint32(s.workers)
			lists[n] = append(lists[n], key)
		}
		var workers sync.WaitGroup
		for _, list := range lists[1:] {
			if len(list) > 0 {
				workers.Go(func() { s.resolveEach(ctx, list) })
			}
		}
		s.resolveEach(ctx, lists[0])
		workers.Wait()
		s.renew(ctx)
	}
}

func (s *Shared) resolveEach(ctx context.Context, keys []string) {
	for _, key := range keys {
		s.resolve(ctx, key)
	}
}

// resolve handles one key.
func (s *Shared) resolve(ctx context.Context, key string) {
	name, ok := nameOf(key)
	if !ok {
		return
	}
	err := s.resolveKey(ctx, key, name)
	if errors.Is(err, pki.ErrGone) { // it has been changed meanwhile
		err = s.resolveKey(ctx, key, name)
	}
	if err == nil {
		s.keys().EndRefusal(name)
		err = s.waits.resolve(ctx, key, name)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	if errors.Is(err, errUnwritten) || errors.Is(err, pki.ErrGone) {
		s.soon[key] = true
	} else {
		s.failed[key] = true
	}
	s.mu.Unlock()
	s.complain("resolve", notInForce, err, "what", key)
}

const notInForce = "a decision about a key is not in force at all masters yet"

// complain logs an error, within the limit of maxComplaints.
func (s *Shared) complain(kind, what string, err error, args ...any) {
	s.throttle.Log(s.opts.Log, slog.LevelWarn, kind, maxComplaints, what, append(args, "err", err)...)
}
