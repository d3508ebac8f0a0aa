package accord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// keyPrefix is the prefix of the names of keys; the fingerprint and the id follow.
const keyPrefix = "key "

// maxKey is the longest such name.
const maxKey = len(keyPrefix) + 95 + 1 + 255

func keyOf(n pki.Name) string { return keyPrefix + n.Finger + " " + string(n.ID) }

func nameOf(key string) (pki.Name, bool) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	finger, id, also := strings.Cut(rest, " ")
	parsed, err := salt.ParseMinionID(id)
	return pki.Name{ID: parsed, Finger: finger}, ok && also && err == nil
}

// inForce is the state in the key store that a decision leads to: a deleted key is not there,
// and may wait there again.
func (a Act) inForce() Act {
	if a == Delete {
		return ""
	}
	return a
}

// strictness is how much a state of the key store refuses: a key that is not there may be
// accepted again, even by rules of this master.
func strictness(a Act) int {
	if a == "" {
		return Delete.weight()
	}
	return a.weight()
}

// stateOf returns the decision that the state of a key in the store stands for.
func stateOf(e pki.Entry) Act {
	switch e.State {
	case pki.Accepted:
		return Accept
	case pki.Rejected:
		return Reject
	}
	return ""
}

// resolveKey first records what was decided here, and then applies what follows from both
// decisions.
func (l *Follower) resolveKey(ctx context.Context, key string, name pki.Name) error {
	entries, err := l.opts.Keys.Store.Of(name.ID)
	e := find(entries, name)
	own, other, base, their := l.at(key)
	now := stateOf(e)
	if err != nil { // unreadable is not deleted; a refusal is applied nevertheless
		switch counts := Counts(own, other).Act; {
		case other.Act == "":
		case counts == Accept:
			l.keys().EndRefusal(name)
		case now == Accept:
			err = errors.Join(err, l.keys().enforce(name, entries, counts.inForce(), l.text(key, their), l.keys().of(other.Name, their)))
		case counts.weight() > Accept.weight() && other.N != base.Upto:
			err = errors.Join(err, l.keys().refuseUnread(name, counts, l.keys().of(other.Name, their).Who()))
		}
		return err
	}
	if base.Lost || now == Accept && base.Act.weight() > Accept.weight() && !l.directory.present() { // nobody has accepted it again
		return l.regain(ctx, key, name, entries)
	}
	if was := l.followed.of(key).unrecorded(now, base); was.n != 0 {
		base = agreement{Act: was.act, Of: cmp.Or(was.by, other.Name), Upto: was.n}
		if err := l.agree(ctx, key, base); err != nil {
			return err // there is nothing accepted here that could be against a refusal
		}
	}
	if now != base.Act.inForce() {
		if err := l.notice(ctx, key, e, base, own, other); err != nil {
			return errors.Join(err, l.refuse(name, entries, base))
		}
	} else if err := l.keepRefusal(ctx, key, e, base, own, other); err != nil {
		return err
	}
	own, other, base, _ = l.at(key)
	if other.Act == "" {
		return nil
	}
	counts := Counts(own, other)
	if counts.Act.weight() == 0 {
		return nil // the one was withdrawn, and the other is forgotten
	}
	if want := counts.Act.inForce(); want != now {
		if !l.opts.Accepts && strictness(want) < strictness(now) {
			return nil // no new key is accepted, and no refusal of this master is lifted
		}
		if err := l.may(want, now, e, base); err != nil {
			return err
		}
		var unrecorded error
		if want != Accept {
			next := base
			next.Next, next.Then = other.N, counts.Act
			if unrecorded = l.agree(ctx, key, next); unrecorded != nil && strictness(want) <= strictness(now) {
				return unrecorded
			} // a refusal is applied nevertheless
			l.followed.add(key, followed{counts.Act, other.N, other.Name}, l.most)
		}
		if err := errors.Join(unrecorded, l.keys().enforce(name, entries, want, l.text(key, their), l.keys().of(other.Name, their))); err != nil {
			return err
		}
	}
	return l.adopt(ctx, key, own, other, base, counts.Act)
}

// regain brings a key into the state that was in force in another key directory, before that was lost or
// replaced by an older copy. What refuses more counts: a rejection in the present directory, or what the
// other master has decided since. A key whose text is not known yet comes with the other master's decision.
func (l *Follower) regain(ctx context.Context, key string, name pki.Name, entries []pki.Entry) error {
	own, other, base, their := l.at(key)
	lost := base.Lost
	base.Lost = false
	now := stateOf(find(entries, name))
	if counts := Counts(own, other); other.N != base.Upto && counts.Act.weight() > base.Act.weight() {
		base = agreement{Act: counts.Act, Of: other.Name, Upto: other.N}
	}
	if want := base.Act.inForce(); want != now && now != Reject {
		text := l.text(key, their)
		if now == "" && text == "" {
			return errLost
		}
		if !lost { // somebody may have just accepted it, and sees it vanish
			l.complain("replaced", "a key that another key directory brings back stays refused", errDirectory, "minion", name.ID, "fingerprint", name.Finger)
		}
		if err := l.keys().enforce(name, entries, want, text, l.keys().of(cmp.Or(other.Name, l.opts.Name), entry{})); err != nil {
			return err
		}
	}
	if err := l.agree(ctx, key, base); err != nil {
		return err
	}
	return l.resolveKey(ctx, key, name)
}

// may limits what the other master can cause here: the number of keys that it brings, each of
// which is a file, and how often it lifts a refusal, so that keys cannot change back and forth
// all the time.
func (l *Follower) may(want, now Act, e pki.Entry, base agreement) error {
	if e.State == pki.Unknown && base.Act == "" && l.brought() >= l.most {
		return fmt.Errorf("%w: %d", errMany, l.most)
	}
	if strictness(want) < strictness(now) && !l.lifts.take(l.most, time.Now()) {
		return errOften
	}
	return nil
}

// adopt stores the result of both decisions, and forgets what no longer matters.
func (l *Follower) adopt(ctx context.Context, key string, own, other Side, base agreement, act Act) error {
	if act == Delete && base.Act == "" && own.Act == "" {
		l.pass(key, other.N) // the key was never here
		l.done(key, other.N)
		return nil
	}
	if err := l.agree(ctx, key, agreement{Act: act, Of: other.Name, Upto: other.N}); err != nil {
		return err
	}
	if other.Act == Withdrawn {
		l.done(key, other.N)
		return nil
	}
	if own.Act == Accept && act.weight() > Accept.weight() {
		if err := l.withdraw(ctx, key, other); err != nil {
			return err
		}
	}
	if act == Delete && own.Act != Delete {
		l.done(key, other.N)
	}
	return nil
}

// refuse applies a new refusal even though what was decided here cannot be stored.
func (l *Follower) refuse(name pki.Name, entries []pki.Entry, base agreement) error {
	own, other, _, their := l.at(keyOf(name))
	want, now := Counts(own, other).Act, stateOf(find(entries, name))
	if other.Act == "" || other.N == base.Upto || strictness(want.inForce()) <= strictness(now) {
		return nil
	}
	return l.keys().enforce(name, entries, want.inForce(), l.text(keyOf(name), their), l.keys().of(other.Name, their))
}

// notice records that a key has another state than agreed, so somebody has decided here. If it
// was put there by us for the other master, and the daemon ended before that was recorded, nobody
// did. A refusal that both have made without knowing of each other is one of each: what lifts
// that of the other master does not lift this one.
func (l *Follower) notice(ctx context.Context, key string, e pki.Entry, base agreement, own, other Side) error {
	now := stateOf(e)
	if other.Act != "" && other.N != base.Upto && Counts(own, other).Act.inForce() == now && (now == Accept || other.N == base.Next) {
		return nil
	}
	act := now
	d := entry{}
	if (now == "" || strictness(now) < strictness(base.Act.inForce())) && !l.directory.present() {
		return errDirectory
	}
	if act == "" {
		act = Delete
	} else {
		d.Key = string(e.Key.PEM())
	}
	d.Act, d.Rule = act, l.made.byRule(l.opts.Keys, key, act)
	if err := l.decide(ctx, key, base, d); err != nil {
		return err
	}
	l.made.forget(key)
	return l.agree(ctx, key, agreement{Act: act, Of: base.Of, Upto: base.Upto})
}

// keepRefusal makes a refusal of another journal one of this master, before a new journal of
// the other master, which does not contain it, is read.
func (l *Follower) keepRefusal(ctx context.Context, key string, e pki.Entry, base agreement, own, other Side) error {
	if other.Name == "" || base.Of == "" || base.Of == other.Name || base.Act.weight() < Delete.weight() || own.Act == base.Act {
		return nil
	}
	d := entry{Decision: Decision{Act: base.Act}}
	if !e.Key.IsZero() {
		d.Key = string(e.Key.PEM())
	}
	if err := l.decide(ctx, key, agreement{}, d); err != nil {
		return err
	}
	return l.agree(ctx, key, agreement{Act: base.Act})
}

// Why a decision of another master is not applied.
var (
	errFalse = errors.New("the key is not the one that is named")
	errMany  = errors.New("there are too many keys and tokens already that the other master has brought here")
	errLost  = errors.New("the key directory is another one, and the key is not known until the other master is linked")
	errOften = errors.New("the other master accepts, and lifts refusals, too often: it is done later")
)

// text returns a public key that one of the decisions contains: the other one may be a
// deletion, which has none.
func (l *Follower) text(key string, their entry) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(their.Key, l.own[key].Key)
}
