package accord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/pki"
)

// Why a decision is not in the table, or not in force here.
var (
	errUnwritten = errors.New("it could not be stored")
	errShare     = errors.New("this master has decided about too many keys that no other one knows")
)

// writeTime is how long a write to a table may take.
const writeTime = 3 * time.Second

// at returns what is known about one key.
func (s *Shared) at(key string) (ruling, agreement) {
	base := s.agreed.of(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.rulings[key], base
}

// knows reports whether the decision in the table was in force here, or was made here, before
// anything changed here.
func (s *Shared) knows(key string, r ruling, base agreement) bool {
	if !r.valid() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.N == base.Upto || r.N == s.passed[key]
}

// ours reports whether the decision in the table is one of this member that was not recorded as being
// in force, since the answer came late or the daemon ended. One that was made with another key directory
// is not: whether it is in force in this one is not known.
func (s *Shared) ours(key string, r ruling, base agreement) bool {
	if !r.valid() || r.N == base.Upto {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.N == s.said[key] || r.By == s.opts.Name && r.Dir == s.directory.name
}

// resolveKey publishes what was decided here, or applies what was decided elsewhere.
func (s *Shared) resolveKey(ctx context.Context, key string, name pki.Name) error {
	entries, err := s.opts.Keys.Store.Of(name.ID)
	e := find(entries, name)
	r, base := s.at(key)
	now := stateOf(e)
	if err != nil { // unreadable is not deleted; a refusal is applied nevertheless
		switch {
		case !r.valid() || r.N == base.Upto:
		case r.Act == Accept:
			s.keys().EndRefusal(name)
		case now == Accept:
			err = errors.Join(err, s.enforce(name, entries, r))
		default:
			err = errors.Join(err, s.keys().refuseUnread(name, r.Act, storeFor(s, name, r).Who()))
		}
		return err
	}
	if s.ours(key, r, base) {
		if err := s.agree(ctx, key, agreement{Act: r.Act, Of: r.By, Upto: r.N}); err != nil {
			return err
		}
		_, base = s.at(key)
	}
	if was := s.done.of(key).unrecorded(now, base); was.n != 0 {
		if err := s.agree(ctx, key, agreement{Act: was.act, Of: was.by, Upto: was.n}); err != nil {
			return err // there is nothing accepted here that could be against a refusal
		}
		_, base = s.at(key)
	}
	if r.Act == Accept && s.loses(key, name, r) {
		return s.lose(ctx, key, name, entries, r)
	}
	switch {
	case now != base.Act.inForce() && !applied(now, r, base):
		return s.decide(ctx, key, name, entries, r, base)
	case !r.valid():
		return s.absent(ctx, key, name, entries, base)
	case r.N != base.Upto:
		return s.follow(ctx, key, name, entries, r, base)
	}
	s.met(key)
	return nil
}

// followed is a decision of another master that was applied here.
type followed struct {
	act Act
	n   uint64
	by  string
}

// followedLast are the latest ones, by key, that are not recorded yet.
type followedLast struct {
	mu    sync.Mutex // not held over I/O
	byKey map[string]followed
}

func (f *followedLast) of(key string) followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byKey[key]
}

// add remembers one, and no more than most.
func (f *followedLast) add(key string, one followed, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byKey == nil || len(f.byKey) >= most {
		f.byKey = map[string]followed{}
	}
	f.byKey[key] = one
}

// drop forgets one: it is recorded, or the key was accepted since, and what refuses it from now on is decided here.
func (f *followedLast) drop(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byKey, key)
}

// unrecorded returns the refusal of another master from which the state of a key follows, if that is not recorded, since the
// store did not answer or the daemon ended; zero for none. f is the latest one that was applied since the start, zero for none.
// Meanwhile the other master may have decided something else: without this, the refusal would be taken for one that was decided
// here, without knowledge of that, and would count more.
func (f followed) unrecorded(now Act, base agreement) followed {
	if f.n == 0 && base.Next != 0 && base.Then != "" {
		f = followed{act: base.Then, n: base.Next}
	}
	if f.n == base.Upto || now == Accept || f.act.inForce() != now || now == base.Act.inForce() {
		return followed{}
	}
	return f
}

// applied reports whether the state of a key follows from the decision in the table: it was applied,
// and the daemon ended before that was recorded. That two members have refused a key is not the same:
// what lifts the one refusal does not lift the other one.
func applied(now Act, r ruling, base agreement) bool {
	return r.valid() && r.N != base.Upto && r.Act.inForce() == now && (now == Accept || r.N == base.Next)
}

// decide handles a key whose state was changed here. If that was done without knowledge of what the
// table says, the one that refuses more counts. A refusal is published even if the table refuses as
// much: what lifts the other one was not decided with knowledge of this one. A directory that was replaced
// by an older copy has been changed by nobody: what it lifts stays refused.
func (s *Shared) decide(ctx context.Context, key string, name pki.Name, entries []pki.Entry, r ruling, base agreement) error {
	e := find(entries, name)
	now := stateOf(e)
	act := now
	if act == "" {
		act = Delete
	}
	replaced := (now == "" || strictness(now) < strictness(base.Act.inForce())) && !s.directory.present()
	if replaced && (now == "" || r.Act.weight() <= Accept.weight()) {
		return errDirectory
	}
	if (replaced || !s.knows(key, r, base)) && strictness(r.Act.inForce()) > strictness(now) {
		if replaced {
			s.complain("replaced", "a key that another key directory brings back stays refused", errDirectory, "minion", name.ID, "fingerprint", name.Finger)
		}
		if now == Accept {
			r.here = replaced // it was told that the key is accepted again
			return s.follow(ctx, key, name, entries, r, base)
		}
		if err := s.enforce(name, entries, r); err != nil {
			return err
		}
		act = r.Act
	}
	if now == Accept {
		if s.doubtful(key, r, base) {
			return s.wait(name, e)
		}
		if other := s.otherAccepted(key, name); other != "" {
			return s.yield(name, entries, r, other)
		}
	}
	return s.publish(ctx, key, e, act, r)
}

// publish stores a decision in the table, in place of r.
func (s *Shared) publish(ctx context.Context, key string, e pki.Entry, act Act, r ruling) error {
	return publishAs(ctx, s, key, e, entry{Decision: Decision{Act: act}, Rule: s.made.byRule(s.opts.Keys, key, act)}, r)
}

// publishAs stores a decision in the table, of which the act is given and who tells of it, in place of r.
func publishAs(ctx context.Context, s *Shared, key string, e pki.Entry, as entry, r ruling) error {
	act := as.Act
	as.Decision, as.Key, as.By, as.Dir, as.At = Decision{Act: act, N: newN(), Seen: r.N, Of: r.By}, r.Key, s.opts.Name, s.directory.name, time.Now().UTC()
	d := ruling{entry: as}
	if !e.Key.IsZero() {
		d.Key = string(e.Key.PEM())
	}
	if act == Delete {
		d.Key = ""
	}
	if err := s.mayPublish(key, d, r); err != nil {
		return err
	}
	value, err := json.Marshal(d.entry)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if r.revision == 0 {
		d.revision, err = s.opts.Table.Create(ctx, key, value)
	} else {
		d.revision, err = s.opts.Table.Update(ctx, key, value, r.revision)
	}
	if err != nil {
		return s.unwritten(ctx, key, err)
	}
	tellMade(s, key, act)
	d.size = len(key) + len(value)
	s.mu.Lock()
	d.reading = s.view.reading
	if s.view.rulings[key].revision < d.revision {
		s.view.set(key, d)
	}
	s.mu.Unlock()
	return s.agree(ctx, key, agreement{Act: act, Of: s.opts.Name, Upto: d.N})
}

// mayPublish notes that a decision is about to be stored. It refuses one that would make the table
// larger than the share of this member, and any while the table cannot be written.
func (s *Shared) mayPublish(key string, d, r ruling) error {
	known := s.agreed.of(key).Act != ""
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muted {
		return errUnwritten
	}
	if r.revision == 0 && !known && s.view.by[s.opts.Name] >= s.most/shares*5/4 {
		return errShare
	}
	s.said[key] = d.N
	return nil
}

// shares is how many members can fill the table together, each with its share of rulings by rules on new keys. What
// people decide has a quarter of that besides, since anybody can make rules decide, with new keys.
const shares = 4

// roomForRules reports whether the rules of this member on new keys may decide about one more. What could not be written
// counts: it will be.
func roomForRules(s *Shared) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.by[s.opts.Name]+len(s.soon)+len(s.failed) < s.most/shares
}

// unwritten handles a write that failed. If somebody else was first, what they have stored is read,
// and the key is handled again.
func (s *Shared) unwritten(ctx context.Context, key string, err error) error {
	if errors.Is(err, journal.ErrChanged) {
		e, bad := s.opts.Table.Entry(ctx, key)
		if bad == nil {
			s.correct(e)
			return fmt.Errorf("%w: %w", errUnwritten, err)
		}
		err = errors.Join(err, bad)
	}
	s.mu.Lock()
	s.muted = true
	s.mu.Unlock()
	return fmt.Errorf("%w: %w", errUnwritten, err)
}

// correct handles an entry that was read and not brought by the watch.
func (s *Shared) correct(e journal.TableEntry) {
	if e.Revision > 0 {
		s.hear(&e)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.drop(e.Key) // it was removed without a trace
	s.due.mark(e.Key)
}

// follow applies the decision in the table.
func (s *Shared) follow(ctx context.Context, key string, name pki.Name, entries []pki.Entry, r ruling, base agreement) error {
	e := find(entries, name)
	want, now := r.Act.inForce(), stateOf(e)
	if r.Act == Delete && base.Act == "" && now == "" { // it was never here
		s.pass(key, r.N)
		return nil
	}
	if want == now {
		s.met(key)
		return s.agree(ctx, key, agreement{Act: r.Act, Of: r.By, Upto: r.N})
	}
	stricter := strictness(want) > strictness(now)
	if !stricter && !s.lift() {
		return errOften
	}
	if want != Accept { // an acceptance counts less than what others have decided meanwhile
		next := base
		next.Next, next.Then = r.N, r.Act
		if err := s.agree(ctx, key, next); err != nil && !stricter {
			return err
		} // a refusal is applied nevertheless
		s.done.add(key, followed{r.Act, r.N, r.By}, s.most)
	}
	if err := s.enforce(name, entries, r); err != nil {
		return err
	}
	return s.agree(ctx, key, agreement{Act: r.Act, Of: r.By, Upto: r.N})
}

// lift reports whether one more refusal may be lifted, or key accepted, for other members now.
func (s *Shared) lift() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lifts.take(s.most, time.Now())
}

// enforce brings a key into the state that the table says. A key that cannot be rejected is deleted:
// what matters most is that it is not accepted. Until that is done, this member is not current.
func (s *Shared) enforce(name pki.Name, entries []pki.Entry, r ruling) error {
	want, now := r.Act.inForce(), stateOf(find(entries, name))
	if want != "" {
		if err := s.waits.makeRoomForDecided(entries, name); err != nil {
			return err
		}
	}
	err := s.keys().enforce(name, entries, want, r.Key, storeFor(s, name, r))
	if err == nil {
		s.met(keyOf(name))
		return nil
	}
	if now != Accept || want == Accept || errors.Is(err, pki.ErrGone) {
		return err
	}
	if want == Reject && s.keys().enforce(name, entries, "", "", storeFor(s, name, r)) == nil {
		s.met(keyOf(name))
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unmet[keyOf(name)] = true
	return err
}

// met notes that a key is not accepted against a refusal.
func (s *Shared) met(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unmet, key)
}

// absent handles a key about which the table says nothing. Entries leave the table only when old
// deletions are forgotten; a table without any such loss is a new one. The member that has deleted the key, whose name is
// forgotten, too, has told of that.
func (s *Shared) absent(ctx context.Context, key string, name pki.Name, entries []pki.Entry, base agreement) error {
	if base.Upto == 0 {
		return nil
	}
	e := find(entries, name)
	s.mu.Lock()
	lossy := s.view.forgotten
	s.mu.Unlock()
	switch now := stateOf(e); {
	case now == "":
	case now == Accept && lossy:
		if err := s.enforce(name, entries, ruling{entry: entry{Decision: Decision{Act: Delete}, By: "(unknown)"}}); err != nil {
			return err
		}
	default:
		r, _ := s.at(key)
		return s.publish(ctx, key, e, now, r)
	}
	return s.agreed.forget(ctx, key)
}

// doubtful reports whether a key that was accepted before this start may have been deleted since, by
// a decision that is forgotten.
func (s *Shared) doubtful(key string, r ruling, base agreement) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !r.valid() && base.Upto == 0 && s.view.forgotten && s.old[key]
}

// wait makes an accepted key wait to be accepted again.
func (s *Shared) wait(name pki.Name, e pki.Entry) error {
	if s.throttle.First("doubtful", time.Now()) {
		s.opts.Log.Warn("keys that were accepted here before this master joined the others must be accepted again: the others may have deleted them long ago", "minion", name.ID)
	}
	r := ruling{entry: entry{By: s.opts.Name}, here: !s.made.untold(keyOf(name))}
	if err := s.keys().enforce(name, []pki.Entry{e}, "", "", storeFor(s, name, r)); err != nil {
		return err
	}
	_, err := s.keys().bring(name, string(e.Key.PEM()))
	return err
}

// otherAccepted returns another key of the same id that the table accepts, "" for none.
func (s *Shared) otherAccepted(key string, name pki.Name) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.view.accepted[name.ID] {
		if other != key {
			return other
		}
	}
	return ""
}

// yield takes back an acceptance of this member where the table accepts another key of that id. If
// that one was refused here, too, the refusal is published first; otherwise it counts. No other member has heard of the
// acceptance: this one tells that it is taken back.
func (s *Shared) yield(name pki.Name, entries []pki.Entry, r ruling, other string) error {
	otherName, _ := nameOf(other)
	first, base := s.at(other)
	if base.Act == Accept && base.Upto == first.N && stateOf(find(entries, otherName)) != Accept {
		s.due.mark(other)
		return fmt.Errorf("%w: the refusal of another key of this id comes first", errUnwritten)
	}
	s.complain("two keys", "an acceptance does not count: another master has accepted another key for the minion", pki.ErrTaken, "minion", name.ID, "fingerprint", name.Finger, "master", first.By)
	r.By, r.here = first.By, !s.made.untold(keyOf(name))
	return s.enforce(name, entries, r)
}

// loses reports whether the table accepts another key of this id, and did so first.
func (s *Shared) loses(key string, name pki.Name, r ruling) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.view.accepted[name.ID] {
		if other != key && s.view.rulings[other].revision < r.revision {
			return true
		}
	}
	return false
}

// lose deletes the later one of two accepted keys of an id: if either were accepted wherever it came
// first, the members would never agree. Whichever member does it first, the one that has accepted the key tells of it: the
// others may never have had it.
func (s *Shared) lose(ctx context.Context, key string, name pki.Name, entries []pki.Entry, r ruling) error {
	e := find(entries, name)
	if stateOf(e) == Accept {
		lost := ruling{entry: entry{By: r.By, Tells: r.By}}
		if err := s.keys().enforce(name, entries, "", "", storeFor(s, name, lost)); err != nil {
			return err
		}
	}
	s.complain("two keys", "two masters have accepted different keys for a minion: the later one is deleted", pki.ErrTaken, "minion", name.ID, "fingerprint", name.Finger, "master", r.By)
	return publishAs(ctx, s, key, pki.Entry{}, entry{Decision: Decision{Act: Delete}, Tells: r.By}, r)
}

// agree stores what is in force here.
func (s *Shared) agree(ctx context.Context, key string, a agreement) error {
	if a.Act != s.agreed.of(key).Act {
		s.directory.changed()
	}
	if err := s.agreed.keep(ctx, key, a); err != nil {
		return err
	}
	if a.Next == 0 {
		s.done.drop(key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.said, key)
	delete(s.passed, key)
	return nil
}

// pass remembers the deletion of what was never here, see Follower.
func (s *Shared) pass(key string, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.passed) >= s.most {
		clear(s.passed)
	}
	s.passed[key] = n
}
