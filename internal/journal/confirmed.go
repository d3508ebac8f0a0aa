package journal

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/uptime"
)

// heardTime is how recently a leader must have heard from the other members. Together with
// freshTime that is less than the four seconds without a leader after which a member may become one.
const heardTime = 2 * time.Second

// ConfirmedTable is a Table whose Get does not return what others have replaced or deleted. The
// leader of a table that is cut off goes on to answer for ten seconds or more, while the others have
// elected another one: a token that they have deleted would still be valid there. Get fails then.
type ConfirmedTable struct {
	*Table

	up func() uptime.Moment

	mu    sync.Mutex
	last  uptime.Moment // when it was last asked
	until uptime.Moment // there is no other leader
	doubt uptime.Moment // until then the leader may have been cut off, and not know yet that it was replaced

	seed  maphash.Seed
	turns [64]chan struct{} // full while a key with this hash is read and stored again
}

// Confirmed returns the same table with such a Get. For a table without copies it is
// the same.
func (t *Table) Confirmed() *ConfirmedTable {
	c := &ConfirmedTable{Table: t, up: uptime.Now, seed: maphash.MakeSeed()}
	for i := range c.turns {
		c.turns[i] = make(chan struct{}, 1)
	}
	return c
}

// Get returns the value under key, nil if there is none.
func (t *ConfirmedTable) Get(ctx context.Context, key string) ([]byte, error) {
	if t.all.CachedInfo().Config.Replicas <= 1 {
		return t.Table.Get(ctx, key)
	}
	if err := t.store.Err(); err != nil && ctx.Value(startKey{}) == nil { // nobody can confirm it, and whoever asks must not wait for that
		return nil, fmt.Errorf("read %s of table %s: %w: %w", key, t.name, ErrStore, err)
	}
	return t.get(ctx, key, t.read)
}

// read reads an entry while it is certain that no other member leads the table. If that is not certain,
// the entry is stored again as it was read, which only the leader can do.
func (t *ConfirmedTable) read(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	until, err := t.confirm(ctx)
	if err != nil {
		return nil, err
	}
	if until.IsZero() {
		return t.readAgain(ctx, key)
	}
	ctx, cancel := context.WithTimeout(ctx, until.Sub(t.up()))
	defer cancel()
	e, err := t.kv.Get(ctx, key)
	if t.up().Sub(until) >= 0 { // the machine may have been suspended meanwhile
		return nil, errNoLeader
	}
	return e, err
}

// againTimes is how often an entry is read that others store again meanwhile.
const againTimes = 20

// readAgain returns an entry that was stored again as it is. Calls for one key take turns, so that only
// other members can get in the way.
func (t *ConfirmedTable) readAgain(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	turn := t.turns[maphash.String(t.seed, key)%uint64(len(t.turns))]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for range againTimes {
		e, err := t.kv.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		revision, err := t.kv.Update(ctx, key, e.Value(), e.Revision())
		t.gave(revision)
		if !isMoved(err) {
			return e, err
		}
	}
	return nil, errNoLeader
}

// confirm returns until when no other member leads the table than the one that answers for it now; zero if
// that is not certain.
//
// What a leader says of whom it has heard may be old: if it was stopped, or its machine was suspended, it first reads what
// had arrived before. So it is believed only if it was asked shortly before, too, and otherwise not for the
// time in which it hears of another one.
func (t *ConfirmedTable) confirm(ctx context.Context) (uptime.Moment, error) {
	t.mu.Lock()
	until := t.until
	t.mu.Unlock()
	begun := t.up()
	if until.Sub(begun) > freshTime/2 {
		return until, nil
	}
	info, err := leaderInfo(ctx, t.all)
	if err != nil {
		return 0, err
	}
	most, all := heard(info.Cluster)
	now := t.up()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !all || t.last.IsZero() || now.Sub(t.last) > freshTime {
		t.doubt = now.Add(heardTime)
	}
	if !most {
		return 0, errNoLeader
	}
	t.last = max(t.last, begun)
	if begun.Sub(t.doubt) < 0 { // the first that it hears may be that there is another one
		return 0, nil
	}
	t.until = begun.Add(freshTime)
	return t.until, nil
}

// heard reports whether a leader has just heard from most members, itself included, and whether from all. If
// it does not hear one, that one may have won an election of which the leader learns a second later, with
// the next heartbeat to those who have voted.
func heard(c *jetstream.ClusterInfo) (most, all bool) {
	if c == nil {
		return true, true
	}
	n := 1
	for _, r := range c.Replicas {
		if !r.Offline && r.Active > 0 && r.Active < heardTime { // 0 is never
			n++
		}
	}
	return n > (len(c.Replicas)+1)/2, n > len(c.Replicas)
}
