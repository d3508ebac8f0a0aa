package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Presence knows which minions are ready for jobs: those with a connection that
// has said hello.
type Presence struct {
	table  *journal.Table
	mu     sync.Mutex
	ready  map[salt.MinionID]map[string]bool // by the inboxes of its connections
	seen   map[salt.MinionID]time.Time       // when the last one of a minion ended
	joined map[salt.MinionID]bool            // since the last call of changes, of which there may be none
	left   map[salt.MinionID]bool
	news   bool // somebody came or went since all times were written down
}

func newPresence() *Presence {
	return &Presence{
		ready: map[salt.MinionID]map[string]bool{}, seen: map[salt.MinionID]time.Time{},
		joined: map[salt.MinionID]bool{}, left: map[salt.MinionID]bool{},
	}
}

// Join notes that the connection with this inbox takes jobs for id.
func (p *Presence) Join(id salt.MinionID, inbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[id] == nil {
		p.ready[id] = map[string]bool{}
		p.joined[id], p.news = true, true
	}
	p.ready[id][inbox] = true
}

// Leave notes the end of a connection. It returns true when that was the last
// one of the minion.
func (p *Presence) Leave(id salt.MinionID, inbox string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready[id][inbox] {
		return false
	}
	delete(p.ready[id], inbox)
	if len(p.ready[id]) > 0 {
		return false
	}
	delete(p.ready, id)
	p.seen[id] = now
	p.left[id], p.news = true, true
	return true
}

// Connected says whether id is connected, and if not when it was last, zero for never.
func (p *Presence) Connected(id salt.MinionID) (ready bool, lastSeen time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready[id] != nil, p.seen[id]
}

// Count is how many minions are connected.
func (p *Presence) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// ids returns the minions that are connected, sorted.
func (p *Presence) ids() []salt.MinionID {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]salt.MinionID, 0, len(p.ready))
	for id := range p.ready {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// changes returns who came and who went since the last call, sorted.
func (p *Presence) changes() (joined, left []salt.MinionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	joined, left = slices.Sorted(maps.Keys(p.joined)), slices.Sorted(maps.Keys(p.left))
	clear(p.joined)
	clear(p.left)
	return joined, left
}

// everSeen returns when each minion was connected last: for those that are, now.
func (p *Presence) everSeen(now time.Time) map[salt.MinionID]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := maps.Clone(p.seen)
	for id := range p.ready {
		seen[id] = now
	}
	return seen
}

// The times are kept over a restart, under one key of a table: "not connected" is
// told with the time at which the minion was there last. Those who were connected when they
// were written are the ones with the latest time; as long as nobody comes or goes a second
// key says until when they were there, so that a kill does not make them older.
const (
	seenTable = "presence"
	seenKey   = "seen"
	aliveKey  = "alive"
	seenEvery = 15 * time.Second // between two times that they are written down
	storeTime = 30 * time.Second
)

// openPresence reads when minions were seen before this start.
func openPresence(ctx context.Context, j *journal.Journal) (*Presence, error) {
	p := newPresence()
	var err error
	if p.table, err = j.Table(ctx, seenTable); err != nil {
		return nil, err
	}
	b, err := p.table.Get(ctx, seenKey)
	if err != nil || b == nil {
		return p, err
	}
	if err := json.Unmarshal(b, &p.seen); err != nil {
		return nil, fmt.Errorf("read when minions were seen: %w", err)
	}
	if b, err = p.table.Get(ctx, aliveKey); err != nil || b == nil {
		return p, err
	}
	var until time.Time
	if err := until.UnmarshalText(b); err != nil {
		return nil, fmt.Errorf("read until when minions were seen: %w", err)
	}
	p.extend(until)
	return p, nil
}

// extend says that those who were connected when the times were written were so until then.
func (p *Presence) extend(until time.Time) {
	var latest time.Time
	for _, at := range p.seen {
		if at.After(latest) {
			latest = at
		}
	}
	for id, at := range p.seen {
		if at.Equal(latest) && until.After(at) {
			p.seen[id] = until
		}
	}
}

// Keep writes down when minions were seen, now and then and at the end of ctx.
func (p *Presence) Keep(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if err := p.store(context.WithoutCancel(ctx), ctx.Err() != nil, time.Now().Truncate(time.Second)); err != nil {
			log.Error("when minions were seen is not recorded", "err", err)
		}
	}
}

// store writes all down if somebody came or went, or it is the last time; else only that
// those who are connected still are.
func (p *Presence) store(ctx context.Context, last bool, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	news, connected := p.takeNews()
	if !news && !last {
		if !connected {
			return nil
		}
		return p.table.Put(ctx, aliveKey, []byte(now.Format(time.RFC3339)))
	}
	seen := p.everSeen(now)
	if len(seen) == 0 {
		return nil
	}
	b, err := json.Marshal(seen)
	if err == nil {
		err = p.table.Put(ctx, seenKey, b)
	}
	if err != nil {
		p.mu.Lock()
		p.news = true
		p.mu.Unlock()
	}
	return err
}

// takeNews says whether somebody came or went since the last call, and whether anybody is connected.
func (p *Presence) takeNews() (news, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news, p.news = p.news, false
	return news, len(p.ready) > 0
}

// Announce fires salt/presence events until ctx ends.
func (p *Presence) Announce(ctx context.Context, every time.Duration, events Events) {
	tick := time.NewTicker(max(every, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if joined, left := p.changes(); len(joined)+len(left) > 0 {
			events.Announce("salt/presence/change", map[string]any{"new": value.Texts(joined), "lost": value.Texts(left)})
		}
		events.Announce("salt/presence/present", map[string]any{"present": value.Texts(p.ids())})
	}
}

// LastSeen says, of one that is not connected, when it was last, and where.
func LastSeen(seen time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "this master"
	}
	if seen.IsZero() {
		return "it was never seen at " + host
	}
	return "last seen " + seen.Format("2006-01-02 15:04:05") + " at " + host
}
