package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Presence records which minions are ready for jobs: those with a connection that has sent
// hello.
type Presence struct {
	table  *journal.Table
	mu     sync.Mutex
	ready  map[salt.MinionID]map[string]bool // the inboxes of its connections, and other members that it is connected to
	framed map[salt.MinionID]string          // the inbox of its connection, if that speaks protocol 1
	seen   map[salt.MinionID]time.Time       // when a minion's last connection ended
	joined map[salt.MinionID]bool            // joined since the last call of changes, if that is used
	left   map[salt.MinionID]bool
	news   bool // a minion has connected or disconnected since the times were recorded
}

func newPresence() *Presence {
	return &Presence{
		ready: map[salt.MinionID]map[string]bool{}, framed: map[salt.MinionID]string{}, seen: map[salt.MinionID]time.Time{},
		joined: map[salt.MinionID]bool{}, left: map[salt.MinionID]bool{},
	}
}

// Join records that the connection with this inbox accepts jobs for id. framed means that it
// speaks protocol 1.
func (p *Presence) Join(id salt.MinionID, inbox string, framed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case framed:
		p.framed[id] = inbox
	case strings.HasPrefix(inbox, inboxRoot):
		delete(p.framed, id)
	}
	if p.ready[id] == nil {
		p.ready[id] = map[string]bool{}
		p.joined[id], p.news = true, true
	}
	p.ready[id][inbox] = true
}

// Leave records the end of a connection. It returns true if it was the last one of the minion.
func (p *Presence) Leave(id salt.MinionID, inbox string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready[id][inbox] {
		return false
	}
	delete(p.ready[id], inbox)
	if p.framed[id] == inbox {
		delete(p.framed, id)
	}
	if len(p.ready[id]) > 0 {
		return false
	}
	delete(p.ready, id)
	p.seen[id] = now
	p.left[id], p.news = true, true
	return true
}

// Connected reports whether id is connected, and if not, when it last was; zero for never.
func (p *Presence) Connected(id salt.MinionID) (ready bool, lastSeen time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready[id] != nil, p.seen[id]
}

// inboxRoot begins the inboxes of connections, and nothing else under which a minion is ready.
const inboxRoot = "_INBOX."

// Here reports whether a minion is connected to this master itself.
func (p *Presence) Here(id salt.MinionID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for place := range p.ready[id] {
		if strings.HasPrefix(place, inboxRoot) {
			return true
		}
	}
	return false
}

// CountHere returns how many minions are connected to this master itself.
func (p *Presence) CountHere() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, places := range p.ready {
		for place := range places {
			if strings.HasPrefix(place, inboxRoot) {
				n++
				break
			}
		}
	}
	return n
}

// Framed reports whether jobs are sent to id as protocol 1 has them.
func (p *Presence) Framed(id salt.MinionID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.framed[id] != ""
}

// Count returns how many minions are connected.
func (p *Presence) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// ids returns the connected minions, sorted.
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

// changes returns which minions have connected and disconnected since the last call, sorted.
func (p *Presence) changes() (joined, left []salt.MinionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	joined, left = slices.Sorted(maps.Keys(p.joined)), slices.Sorted(maps.Keys(p.left))
	clear(p.joined)
	clear(p.left)
	return joined, left
}

// everSeen returns when each minion was last connected; for connected ones, now.
func (p *Presence) everSeen(now time.Time) map[salt.MinionID]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := maps.Clone(p.seen)
	for id := range p.ready {
		seen[id] = now
	}
	return seen
}

// The times are stored, under one key of a table, so that "not connected" can be shown with a
// time after a restart. Minions that were connected at the time of writing have the latest
// time. While no minion connects or disconnects, a second key records until when they were
// connected, so that a kill does not make their times older.
const (
	seenTable = "presence"
	seenKey   = "seen"
	aliveKey  = "alive"
	seenEvery = 15 * time.Second // pause between two records
	storeTime = 30 * time.Second
)

// openPresence reads the times from before this start.
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

// extend sets the time of the minions that were connected when the times were written to until.
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

// Keep records the times now and then, and at the end of ctx.
func (p *Presence) Keep(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if err := p.store(context.WithoutCancel(ctx), ctx.Err() != nil, time.Now().Truncate(time.Second)); err != nil {
			log.Error("the times when minions were last seen are not recorded", "err", err)
		}
	}
}

// store writes all times if a minion has connected or disconnected, or last is true; otherwise
// only until when the connected ones are.
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

// takeNews reports whether a minion has connected or disconnected since the last call, and
// whether any is connected.
func (p *Presence) takeNews() (news, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news, p.news = p.news, false
	return news, len(p.ready) > 0
}

// Announce fires salt/presence events until ctx ends, while first returns true: in a cluster one
// member fires them, for the minions of all. first is nil for a single master. A member that takes
// over cannot know which changes were fired before, so it fires those from then on.
func (p *Presence) Announce(ctx context.Context, every time.Duration, events Events, first func() bool) {
	tick := time.NewTicker(max(every, time.Second))
	defer tick.Stop()
	known := first == nil
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		joined, left := p.changes()
		if first != nil && !first() {
			known = false
			continue
		}
		if known && len(joined)+len(left) > 0 {
			events.Announce("salt/presence/change", map[string]any{"new": value.Texts(joined), "lost": value.Texts(left)})
		}
		known = true
		events.Announce("salt/presence/present", map[string]any{"present": value.Texts(p.ids())})
	}
}
