package accord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
)

// Limits of keys that wait, which are pending or denied. Anybody can make a key wait.
const (
	// mostClaims is how many waiting keys of one member the others see; the largest fleet that one
	// master is meant for can wait at once.
	mostClaims = 10_000
	// maxAllClaims is how many of all members are remembered.
	maxAllClaims = 50_000
	// maxDeletions is how many deleted entries are remembered until they are removed: five members can
	// make and delete 230,000 claims within forgetTime.
	maxDeletions = 250_000
)

// maxClaimsOfID is how many claims about keys of one id are remembered: nine members can claim all that
// their stores hold, at the same moment. All but pki.MaxRefused+1 are given up then, see counts.
const maxClaimsOfID = 9 * (pki.MaxRefused + 1)

// noticeTime is long enough for a change of the key directory to be noticed.
const noticeTime = time.Minute

// brought is the host for which waiting keys of other masters count: they have one share together.
const brought = "the other masters"

// claim is an entry in the shared table about a key that waits for a decision.
type claim struct {
	Master   string `json:"master"`           // one member where it waits
	Key      string `json:"key,omitempty"`    // PEM, if it is pending there
	Denied   string `json:"denied,omitempty"` // PEM, if it is denied there: a version that knows only Key does not make it pending
	revision uint64
	reading  uint64 // when it was last heard of
}

// newClaim is a claim of a member about a key in its store.
func newClaim(master string, e pki.Entry) claim {
	c := claim{Master: master, Key: string(e.Key.PEM())}
	if e.State == pki.Denied {
		c.Key, c.Denied = "", c.Key
	}
	return c
}

// state is that of the key where it is claimed.
func (c claim) state() pki.State {
	if c.Denied != "" {
		return pki.Denied
	}
	return pki.Pending
}

// waiting reports whether nobody has decided about a key with this state.
func waiting(s pki.State) bool { return s == pki.Pending || s == pki.Denied }

// waits is what a member knows of waiting keys.
type waits struct {
	of        *Shared
	claimable int           // mostClaims
	pause     time.Duration // again: between two calls of forget

	mu      sync.Mutex           // guards the next fields; not held over I/O
	claims  map[string]claim     // by the name of the key
	ids     claimedIDs           // the names of claims
	own     int                  // how many of them are of this member
	making  map[string]bool      // keys whose claims this member is about to write
	brought map[string]time.Time // waits here only since it waits, or waited, at another member, and since when
	dropped map[string]bool      // a person has deleted it here while it waited
	evicted map[string]bool      // it made room here for others; only keys of claims
	undone  map[string]bool      // this member is deleting the file or the claim itself
	taken   map[string]bool      // another member has deleted the claim of this one
	allowed allowance            // new claims
	deleted map[string]deletion  // by the name of the entry
}

// deletion is the mark that a deleted entry has left in the table.
type deletion struct {
	revision uint64
	at       time.Time // when it was heard of
}

func newWaits(of *Shared) *waits {
	return &waits{of: of, claimable: mostClaims, pause: again, claims: map[string]claim{}, ids: claimedIDs{}, making: map[string]bool{}, brought: map[string]time.Time{}, dropped: map[string]bool{}, evicted: map[string]bool{}, undone: map[string]bool{}, taken: map[string]bool{}, deleted: map[string]deletion{}}
}

// keys returns the keys that wait anywhere, and those that somebody has deleted.
func (w *waits) keys() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(w.claims)), maps.Keys(w.dropped))
}

// set notes a claim. The caller holds mu, as for drop.
func (w *waits) set(key string, c claim) {
	w.drop(key)
	w.claims[key] = c
	w.ids.add(key)
	if c.Master == w.of.opts.Name {
		w.own++
	}
	delete(w.making, key)
}

// drop forgets a claim.
func (w *waits) drop(key string) {
	if c, known := w.claims[key]; known && c.Master == w.of.opts.Name {
		w.own--
	}
	delete(w.claims, key)
	w.ids.remove(key)
}

// hear handles an entry about a waiting key. The caller holds the lock of the view.
func (w *waits) hear(e journal.TableEntry, reading uint64) {
	key := keyPrefix + strings.TrimPrefix(e.Key, claimPrefix)
	w.mu.Lock()
	defer w.mu.Unlock()
	old, known := w.claims[key]
	name, ok := nameOf(key)
	if !ok || e.Revision < max(old.revision, w.deleted[e.Key].revision) {
		return
	}
	w.of.due.mark(key)
	if e.Value == nil {
		w.unclaim(key)
		if !w.of.view.complete && len(w.brought) < maxDeletions {
			w.brought[key] = time.Time{} // decided about while this member was stopped, or before: a minion that is not here does not bring it back
		}
		if d, marked := w.deleted[e.Key]; d.revision != e.Revision && (marked || len(w.deleted) < maxDeletions) {
			w.deleted[e.Key] = deletion{e.Revision, time.Now()}
		}
		return
	}
	var c claim
	err := errors.New("it is too long")
	if len(e.Value) <= maxEntry {
		err = json.Unmarshal(e.Value, &c)
	}
	if err != nil || !known && (len(w.claims) >= maxAllClaims || len(w.ids[name.ID]) >= maxClaimsOfID) {
		return
	}
	c.Master = masterName(c.Master)
	c.revision, c.reading = e.Revision, reading
	delete(w.deleted, e.Key) // the claim has replaced the mark
	w.set(key, c)
	w.of.due.mark(w.ids[name.ID]...) // they may count for something else now
}

// heardAll forgets what was not heard of in the latest reading from the beginning.
func (w *waits) heardAll(reading uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, c := range w.claims {
		if c.reading != reading {
			w.unclaim(key)
		}
	}
}

// forget removes marks of deleted entries that are old. A flood of claims leaves so many that this takes
// minutes. What fails is tried again the next time.
func (w *waits) forget(ctx context.Context) {
	for name, d := range w.forgettable(time.Now()) {
		if err := w.remove(ctx, name, d); err != nil {
			if ctx.Err() == nil {
				w.of.complain("forget", "deleted entries are not removed", err)
			}
			return
		}
	}
}

func (w *waits) forgettable(now time.Time) map[string]deletion {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := map[string]deletion{}
	for name, d := range w.deleted {
		if now.Sub(d.at) > forgetTime {
			old[name] = d
		}
	}
	return old
}

func (w *waits) remove(ctx context.Context, name string, d deletion) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := w.of.opts.Table.RemoveAt(ctx, name, d.revision); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deleted[name] == d {
		delete(w.deleted, name)
	}
	return nil
}

// changed notes a change of the key store.
func (w *waits) changed(key string, c keyring.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case waiting(c.After):
		delete(w.evicted, key)
	case !waiting(c.Before):
	case w.undone[key]:
		delete(w.undone, key)
	case c.After == pki.Unknown && c.GaveWay:
		if _, claimed := w.claims[key]; claimed { // a key that the others do not see is not brought back anyway
			w.evicted[key] = true
		}
	case c.After == pki.Unknown:
		w.dropped[key] = true
	}
	if !waiting(c.After) {
		delete(w.brought, key)
	}
}

// unclaim forgets a claim that is no longer in the table. The caller holds mu.
func (w *waits) unclaim(key string) {
	c, known := w.claims[key]
	if known && c.Master == w.of.opts.Name && !w.undone[claimOf(key)] {
		w.taken[key] = true
	}
	delete(w.undone, claimOf(key))
	delete(w.evicted, key)
	w.drop(key)
	w.of.due.mark(key)
	if name, ok := nameOf(key); ok {
		w.of.due.mark(w.ids[name.ID]...) // they may count for something else now
	}
}

// resolve makes a key that waits at any member wait at all of them, in the same state, so that it can be
// decided about at any. Its claim in the table is that of one member where it waits.
func (w *waits) resolve(ctx context.Context, key string, name pki.Name) error {
	entries, err := w.of.opts.Keys.Store.Of(name.ID)
	if err != nil {
		return err
	}
	e := find(entries, name)
	w.mu.Lock()
	c, claimed := w.claims[key]
	counts := w.counts(key, name.ID)
	dropped, evicted, taken := w.dropped[key], w.evicted[key], w.taken[key]
	since, was := w.brought[key]
	delete(w.taken, key)
	if waiting(e.State) || !claimed {
		delete(w.dropped, key) // otherwise only with its claim, which may take several attempts
	}
	if !waiting(e.State) && !claimed {
		delete(w.brought, key) // there was no room for it here, and it waits nowhere any more
	}
	w.mu.Unlock()
	own := c.Master == w.of.opts.Name
	switch {
	case waiting(e.State) && claimed:
		return w.align(ctx, key, name, entries, c, counts)
	case !waiting(e.State) && !claimed:
		w.retry(entries)
		return nil
	case waiting(e.State) && (taken || was && !w.of.opts.Keys.Connected(e.Key)):
		return w.dropHere(name, e)
	case waiting(e.State):
		return w.claim(ctx, key, name, entries)
	case own || dropped || e.State == pki.Accepted || e.State == pki.Rejected:
		return w.dropClaim(ctx, key, c)
	case e.State != pki.Unknown || evicted || counts == pki.Unknown:
		return nil
	case time.Since(since) > noticeTime:
		return w.bringClaim(key, name, entries, c, counts)
	default: // somebody else has just deleted it: changed will say so
		w.of.mu.Lock()
		defer w.of.mu.Unlock()
		w.of.soon[key] = true
	}
	return nil
}

// claim tells the others of a key that waits here.
func (w *waits) claim(ctx context.Context, key string, name pki.Name, entries []pki.Entry) error {
	s, e := w.of, find(entries, name)
	s.mu.Lock()
	muted := s.muted
	s.mu.Unlock()
	pending, denied := w.claimed(name.ID)
	switch {
	case muted:
		return errUnwritten
	case e.State == pki.Pending && (pending || s.otherAccepted(key, name) != ""): // that was not known here when it came
		var err error
		if e, err = w.suspend(entries, e, pki.Denied); err != nil || e.State == pki.Unknown {
			return err
		}
	}
	c := newClaim(s.opts.Name, e)
	switch {
	case e.State == pki.Denied && denied >= pki.MaxRefused:
		return nil // as in one store
	case !w.room(key):
		s.complain("claims", "so many keys wait here that the other masters do not see all of them", errMany)
		return nil
	}
	defer w.made(key)
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	revision, err := s.opts.Table.Create(ctx, claimOf(key), value)
	if errors.Is(err, journal.ErrChanged) {
		return nil // another member was first, and the watch brings that
	}
	if err != nil {
		return s.unwritten(ctx, claimOf(key), err)
	}
	w.claimedAt(key, name, c, revision)
	return nil
}

// claimedAt notes that this member has written a claim.
func (w *waits) claimedAt(key string, name pki.Name, c claim, revision uint64) {
	s := w.of
	s.mu.Lock()
	reading := s.view.reading
	s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch { // the watch may have been faster
	case w.deleted[claimOf(key)].revision > revision: // another member has deleted it, perhaps before it was heard here
		w.taken[key] = true
		s.due.mark(key)
	case w.claims[key].revision < revision:
		c.revision, c.reading = revision, reading
		w.set(key, c)
		s.due.mark(w.ids[name.ID]...)
	}
}

// room reports whether this member may make one more claim, about that key; made is called when it is
// made or has failed.
func (w *waits) room(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own+len(w.making) >= w.claimable || !w.allowed.take(w.claimable, time.Now()) {
		return false
	}
	w.making[key] = true
	return true
}

func (w *waits) made(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.making, key)
}

// dropClaim tells the others that a key no longer waits.
func (w *waits) dropClaim(ctx context.Context, key string, c claim) error {
	w.undoes(claimOf(key), true)
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := w.of.opts.Table.DeleteAt(ctx, claimOf(key), c.revision)
	if errors.Is(err, journal.ErrChanged) {
		w.undoes(claimOf(key), false)
		return nil
	}
	if err != nil {
		w.undoes(claimOf(key), false)
		return fmt.Errorf("%w: %w", errUnwritten, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.dropped, key)
	if w.claims[key].revision != c.revision {
		delete(w.undone, claimOf(key)) // the mark has been heard already, also that of another member
		return nil
	}
	w.drop(key)
	delete(w.evicted, key)
	return nil
}

// bringClaim makes a key wait here that waits at another member, in the state in which it counts.
func (w *waits) bringClaim(key string, name pki.Name, entries []pki.Entry, c claim, counts pki.State) error {
	public, err := pki.ParsePublic([]byte(cmp.Or(c.Denied, c.Key)))
	if err == nil && public.SHA256() != name.Finger {
		err = errFalse
	}
	if err != nil {
		w.of.complain("false claim", "a key that waits at another master is not shown here", err, "key", key)
		return nil
	}
	if err := w.makeRoom(entries, name, counts); err != nil {
		return err
	}
	w.mu.Lock()
	w.brought[key] = time.Now()
	delete(w.undone, key) // of the file that was there before: the watch may have missed it
	w.mu.Unlock()
	if _, err := w.of.opts.Keys.Bring(name.ID, public, brought, counts); err != nil && !errors.Is(err, pki.ErrFull) {
		return err
	}
	return nil
}

// dropHere deletes a key that no longer waits at the member where it came from, or that somebody has
// deleted at another one.
func (w *waits) dropHere(name pki.Name, e pki.Entry) error {
	w.undoes(keyOf(name), true)
	if err := w.of.keys().By(audit.Who{Source: "another master", Elsewhere: true}).Delete(e); err != nil {
		w.undoes(keyOf(name), false)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.brought, keyOf(name)) // here it is known who has deleted it
	return nil
}

// undoes notes that this member itself deletes a file or a claim.
func (w *waits) undoes(what string, does bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.undone) >= maxDeletions {
		clear(w.undone)
	}
	if does {
		w.undone[what] = true
	} else {
		delete(w.undone, what)
	}
}
