package eauth

import (
	"context"
	"strings"
	"time"
)

// clockAgree is how far two times may be apart that count as the same. Each member stores its own each
// minute.
const clockAgree = 5 * time.Minute

// correctClock has the clock go back to that of the system, if it is ahead of that since the system
// clock was wrong and was set right. Otherwise this member would judge tokens by a wrong time for as
// long as the system clock was ahead, over all restarts.
//
// That the system clock is right now, and is not being set back, only the other members can tell:
// the times that they have stored must be that of the system clock, for one of them at least, and
// none may be later. Whatever has expired by those times stays so. A single master has nobody to
// compare with, and never goes back.
func (g *Authenticator) correctClock(ctx context.Context) error {
	wall := g.clock.system()
	ahead := g.clock.now().Sub(wall)
	if ahead <= clockAgree {
		g.noteAhead(false)
		return nil
	}
	latest, later := time.Time{}, ""
	if g.member != "" {
		var err error
		if latest, later, err = g.timeOfOthers(ctx); err != nil {
			return err
		}
	}
	switch {
	case latest.Before(wall.Add(-clockAgree)) || latest.After(wall.Add(clockAgree)):
		if g.noteAhead(true) {
			g.log.Warn("tokens are judged by a time that is ahead of the clock of this machine, since that was set back", "ahead", ahead.Round(time.Second), "latest_of_others", later,
				"hint", "if the clock was wrong before, see 'When a clock was ahead' in doc/authentication.md")
		}
		return nil
	case latest.Before(wall):
		latest = wall
	}
	g.clock.goBack(latest)
	g.noteAhead(false)
	g.log.Warn("tokens are judged by the clock of this machine again, which was ahead and was set right: the other members have the same time", "ahead", ahead.Round(time.Second))
	return nil
}

// noteAhead reports whether it is news that the clock is ahead, or not.
func (g *Authenticator) noteAhead(is bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	news := is != g.ahead
	g.ahead = is
	return news
}

// timeOfOthers returns the latest time that another member has stored, and which one; the zero time if
// none has.
func (g *Authenticator) timeOfOthers(ctx context.Context) (latest time.Time, member string, err error) {
	err = g.store.Each(ctx, func(key string, value []byte) {
		name, is := strings.CutPrefix(key, clockKey+"/")
		if !is || name == g.member {
			return
		}
		if t, err := time.Parse(time.RFC3339Nano, string(value)); err == nil && t.After(latest) {
			latest, member = t, name
		}
	})
	return latest, member, err
}

// Forget removes the time of a former member. If that was ahead, no clock of the others could be corrected any
// more, since nobody would store a right one in its place.
func (g *Authenticator) Forget(ctx context.Context, member string) error {
	if member == "" || member == g.member {
		return nil
	}
	key := clockKey + "/" + member
	b, err := g.store.Get(ctx, key)
	if err != nil || b == nil {
		return err
	}
	return g.store.Delete(ctx, key)
}
