package eauth

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

const (
	// sweepEvery is how often expired tokens are removed.
	sweepEvery = time.Minute
	// clockSkew is how much the clocks of two members of a cluster may differ. For so long a token is kept
	// after it has expired by the clock of one of them.
	clockSkew = 24 * time.Hour
)

// refuse ends a token that is refused permanently. A member of a cluster keeps it: accounts, backends and
// clocks of the members may differ, and what one of them judges must not end the token at all.
func (g *Authenticator) refuse(ctx context.Context, key string, s *stored, reason error) error {
	log := g.log.With("user", s.User, "eauth", s.Backend, "id", key[:shortest], "reason", reason)
	if g.member == "" {
		log.Info("token deleted")
		return errors.Join(g.store.DeleteUntil(ctx, key, s.gone()), g.noteTime(ctx))
	}
	g.mu.Lock()
	known := g.refused[key]
	g.refused[key] = true
	g.mu.Unlock()
	if known { // whoever shows it again and again causes no writing
		return nil
	}
	log.Info("token refused", "hint", "it is not deleted; if other members accept it, their accounts, external_auth or clocks differ from those here")
	return g.noteTime(ctx)
}

// accepted forgets that a token was refused: the account is again as it was.
func (g *Authenticator) accepted(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.refused, key)
}

// Keep sweeps periodically until ctx ends.
func (g *Authenticator) Keep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := g.Sweep(ctx); err != nil && ctx.Err() == nil {
			g.log.Error("expired tokens not removed", "err", err)
		}
	}
}

// Sweep deletes tokens that have expired or whose parent token is gone, and cached accounts that
// were not used for a while. In a cluster expired tokens are kept for a day.
func (g *Authenticator) Sweep(ctx context.Context) error {
	if err := g.correctClock(ctx); err != nil {
		return err
	}
	now := g.clock.now()
	all, err := g.all(ctx)
	if err != nil {
		return err
	}
	counted, gone := g.sort(all, now)
	for _, key := range gone {
		s := all[key]
		if err := g.store.DeleteUntil(ctx, key, s.gone()); err != nil {
			return err
		}
	}
	g.mu.Lock()
	g.tokens, g.tokensOf = len(counted), map[string]int{}
	for _, key := range counted {
		g.tokensOf[all[key].owner()]++
	}
	maps.DeleteFunc(g.refused, func(key string, _ bool) bool { _, there := all[key]; return !there })
	for key, l := range g.looks {
		if l.mu.TryLock() {
			if time.Since(l.at) > lookEvery {
				delete(g.looks, key)
			}
			l.mu.Unlock()
		}
	}
	g.mu.Unlock()
	return g.noteTime(ctx)
}

// sort returns the keys of the tokens that count for the limits, and of those to delete. In a cluster there
// are others: they are not valid here, and may be at another member.
func (g *Authenticator) sort(all map[string]stored, now time.Time) (counted, gone []string) {
	g.mu.Lock()
	refused := maps.Clone(g.refused)
	g.mu.Unlock()
	var kept []string
	for key, s := range all {
		switch lives := s.lives(all, now); {
		case lives && !refused[key]:
			counted = append(counted, key)
		case g.member == "" || s.orphaned(all) || !now.Before(s.gone()):
			gone = append(gone, key)
		default:
			kept = append(kept, key)
		}
	}
	return counted, append(gone, tooMany(all, kept)...)
}

// tooMany returns which of these tokens exceed the limits, which are those of valid ones: if these are valid
// at another member, none of them does. The ones that expire first go.
func tooMany(all map[string]stored, keys []string) (gone []string) {
	slices.SortFunc(keys, func(a, b string) int { return all[b].Expires.Compare(all[a].Expires) })
	of := map[string]int{}
	for n, key := range keys {
		owner := all[key].owner()
		if of[owner]++; n >= maxTokens || of[owner] > maxOfUser {
			gone = append(gone, key)
		}
	}
	return gone
}

// owner is the key of the user in tokensOf.
func (s stored) owner() string { return lookKey(s.Backend, s.User) }
