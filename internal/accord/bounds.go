package accord

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/journal"
)

// liftsPerSecond is how many acceptances of the other master a second are applied here over a
// long time.
const liftsPerSecond = 10

// allowance limits how often something may be done: size times at once, and then at a fixed
// rate. It does not depend on the wall clock. The zero value is full.
type allowance struct {
	used float64
	at   time.Time
}

func (a *allowance) take(most int, now time.Time) bool {
	a.used = max(0, a.used-now.Sub(a.at).Seconds()*liftsPerSecond)
	a.at = now
	if a.used+1 > float64(most) {
		return false
	}
	a.used++
	return true
}

// prunedAtOnce limits how long one round of prune takes.
const prunedAtOnce = 10_000

// prune forgets expired tokens and, if there are many refusals without a key in the store, the
// oldest of them. It keeps what the other master still accepts and, while it is away, what it
// may accept: that would come back.
func (l *Follower) prune(ctx context.Context) {
	now := time.Now()
	expired, old, agreed := l.prunable(now)
	for _, key := range append(expired, old...) {
		l.forget(ctx, l.opts.Own, key, func() { delete(l.own, key) })
	}
	for _, key := range agreed {
		l.forget(ctx, l.opts.Agreed, key, func() { delete(l.agreed, key) })
	}
}

func (l *Follower) prunable(now time.Time) (expired, old, agreed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.theirs, func(key string, e entry) bool {
		if e.over(now) {
			l.heard -= e.size
			return true
		}
		return false
	})
	ages := map[string]int64{}
	for key, e := range l.own {
		switch {
		case e.Act == Issue && e.over(now):
			expired = append(expired, key)
		case e.Act.refusal() && (e.Until.IsZero() || e.over(now)) && l.spare(key):
			ages[key] = e.At.Unix()
		}
	}
	expired = expired[:min(len(expired), prunedAtOnce)]
	old = oldest(ages, l.most/2)
	clear(ages)
	for key, a := range l.agreed {
		if _, ours := l.own[key]; !ours && (a.Act == Delete || a.Until != 0 && a.Until < now.Add(-clocks).Unix()) {
			ages[key] = a.At
		}
	}
	return expired, old, oldest(ages, l.most/2)
}

// spare reports whether a refusal of this master may be forgotten. The caller holds mu.
func (l *Follower) spare(key string) bool {
	if l.peer == "" {
		return l.agreed[key].Of == ""
	}
	return l.theirs[key].Act.weight() != Accept.weight()
}

// oldest returns those beyond the kept newest ones.
func oldest(ages map[string]int64, kept int) []string {
	if len(ages) <= kept {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(ages), func(a, b string) int { return cmp.Compare(ages[a], ages[b]) })
	return keys[:min(len(keys)-kept, prunedAtOnce)]
}

func (l *Follower) forget(ctx context.Context, from Table, key string, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := from.Remove(ctx, key); err != nil {
		l.complain("forget", "what was decided long ago is not forgotten", err)
		return
	}
	done()
}

// forgetTime is how long the marks of deleted entries stay in the shared table. A member that was
// away for a shorter time finds them there; one that was away longer reads the table again.
const forgetTime = time.Hour

// forgetOld removes the oldest deletions of keys, if there are many, until a time, and reports whether
// some are left: meanwhile no decision is applied. That is recorded in the table first: a member that was
// away since before the deletion can then tell that the key was deleted, see absent and doubtful.
func (s *Shared) forgetOld(ctx context.Context, until time.Time) (left bool) {
	old := s.forgettable()
	if len(old) == 0 {
		return false
	}
	limited, cancel := context.WithDeadline(ctx, until.Add(writeTime))
	defer cancel()
	_, err := s.opts.Table.Create(limited, forgotten, []byte("{}"))
	if errors.Is(err, journal.ErrChanged) {
		err = nil
	}
	for done := false; err == nil && !done && len(old) > 0; done = !time.Now().Before(until) {
		if err = forgetRuling(limited, s, old[0].key, old[0].revision); err == nil {
			old = old[1:]
		}
	}
	if err != nil && ctx.Err() == nil {
		s.complain("forget", "what was decided long ago is not forgotten", err)
	}
	return err == nil && len(old) > 0
}

// forgetRuling removes what was decided about a key at a revision, here and for all. What was decided later
// stays: the deletion was found before those of other keys were removed, and decisions are heard meanwhile.
func forgetRuling(ctx context.Context, s *Shared, key string, revision uint64) error {
	if r, _ := s.at(key); r.revision != revision {
		return nil
	}
	if err := s.opts.Table.RemoveAt(ctx, key, revision); err != nil {
		return err
	}
	if err := s.agreed.forget(ctx, key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.forgotten = true
	if s.view.rulings[key].revision == revision {
		s.view.drop(key)
	}
	return nil
}

// oldDeletion is what is forgotten: the deletion of a key at a revision.
type oldDeletion struct {
	key      string
	revision uint64
}

// forgettable returns the oldest deletions, if there are many, or many of this member.
func (s *Shared) forgettable() []oldDeletion {
	s.mu.Lock()
	defer s.mu.Unlock()
	ages, own := map[string]int64{}, map[string]int64{}
	for key, r := range s.view.rulings {
		if base := s.agreed.of(key); r.Act == Delete && (base.Upto == 0 || base.Upto == r.N) {
			ages[key] = int64(r.revision)
			if r.By == s.opts.Name {
				own[key] = ages[key]
			}
		}
	}
	keys := oldest(own, s.most/shares/2)
	for _, key := range keys {
		delete(ages, key)
	}
	var old []oldDeletion
	for _, key := range append(keys, oldest(ages, s.most/2)...) {
		old = append(old, oldDeletion{key, s.view.rulings[key].revision})
	}
	return old
}
