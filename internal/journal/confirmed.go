package journal

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// heardTime is how recently a leader must have heard from enough of the other members. Together with
// freshTime that is less than the four seconds without a leader after which a member may become one.
const heardTime = 2 * time.Second

// ConfirmedTable is a Table whose Get does not return what others have replaced or deleted. The
// leader of a table that is cut off goes on to answer for ten seconds or more, while the others have
// elected another one: a token that they have deleted would still be valid there. Get fails then.
type ConfirmedTable struct {
	*Table

	mu    sync.Mutex
	until time.Time // there is no other leader
	doubt time.Time // until then the leader may have been cut off, and not know yet that it was replaced
}

// Confirmed returns the same table with such a Get. For a table without copies it is
// the same.
func (t *Table) Confirmed() *ConfirmedTable { return &ConfirmedTable{Table: t} }

// Get returns the value under key, nil if there is none.
func (t *ConfirmedTable) Get(ctx context.Context, key string) ([]byte, error) {
	if t.all.CachedInfo().Config.Replicas <= 1 {
		return t.Table.Get(ctx, key)
	}
	return t.get(ctx, key, t.read)
}

// read reads an entry while it is certain that no other member leads the table.
func (t *ConfirmedTable) read(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	until, err := t.confirm(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	return t.kv.Get(ctx, key)
}

// confirm returns until when no other member leads the table than the one that answers for it now.
func (t *ConfirmedTable) confirm(ctx context.Context) (time.Time, error) {
	t.mu.Lock()
	until, doubt := t.until, t.doubt
	t.mu.Unlock()
	begun := time.Now()
	if until.Sub(begun) > freshTime/2 {
		return until, nil
	}
	info, err := leaderInfo(ctx, t.all)
	if err != nil {
		return time.Time{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !isHeard(info.Cluster) {
		t.doubt = time.Now().Add(heardTime)
		return time.Time{}, errNoLeader
	}
	if begun.Before(doubt) { // the first that it hears may be that there is another one
		return time.Time{}, errNoLeader
	}
	t.until = begun.Add(freshTime)
	return t.until, nil
}

// isHeard reports whether a leader has just heard from so many others that a majority without it cannot
// have elected another one. A leader that is cut off from one other member only may have lost an
// election; it hears that from the rest with the next heartbeat, a second later.
func isHeard(c *jetstream.ClusterInfo) bool {
	if c == nil {
		return true
	}
	heard := 1
	for _, r := range c.Replicas {
		if !r.Offline && r.Active > 0 && r.Active < heardTime { // 0 is never
			heard++
		}
	}
	return heard > (len(c.Replicas)+1)/2
}
