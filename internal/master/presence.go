package master

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// presence knows which minions are ready for jobs: those with a connection that
// has said hello.
type presence struct {
	mu     sync.Mutex
	ready  map[salt.MinionID]map[string]bool // by the inboxes of its connections
	seen   map[salt.MinionID]time.Time       // when the last one of a minion ended
	joined []salt.MinionID                   // since the last call of changes
	left   []salt.MinionID
}

func newPresence() *presence {
	return &presence{ready: map[salt.MinionID]map[string]bool{}, seen: map[salt.MinionID]time.Time{}}
}

// join notes that the connection with this inbox takes jobs for id.
func (p *presence) join(id salt.MinionID, inbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[id] == nil {
		p.ready[id] = map[string]bool{}
		p.joined = append(p.joined, id)
	}
	p.ready[id][inbox] = true
}

// leave notes the end of a connection. It returns true when that was the last
// one of the minion.
func (p *presence) leave(id salt.MinionID, inbox string, now time.Time) bool {
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
	p.left = append(p.left, id)
	return true
}

// has says whether id is connected, and if not when it was last, zero for never.
func (p *presence) has(id salt.MinionID) (ready bool, lastSeen time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready[id] != nil, p.seen[id]
}

// ids returns the minions that are connected, sorted.
func (p *presence) ids() []salt.MinionID {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]salt.MinionID, 0, len(p.ready))
	for id := range p.ready {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// changes returns who came and who went since the last call.
func (p *presence) changes() (joined, left []salt.MinionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	joined, left, p.joined, p.left = p.joined, p.left, nil, nil
	return joined, left
}

// everSeen returns when each minion was connected last: for those that are, now.
func (p *presence) everSeen(now time.Time) map[salt.MinionID]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := maps.Clone(p.seen)
	for id := range p.ready {
		seen[id] = now
	}
	return seen
}

// The times are kept over a restart, under one key of a table: "not connected" is
// told with the time at which the minion was there last.
const (
	seenTable = "presence"
	seenKey   = "seen"
	seenEvery = time.Minute // between two times that they are written down
)

// openPresence reads when minions were seen before this start.
func (m *Master) openPresence(ctx context.Context) error {
	table, err := m.journal.Table(ctx, seenTable)
	if err != nil {
		return err
	}
	b, err := table.Get(ctx, seenKey)
	if err != nil || b == nil {
		return err
	}
	if err := json.Unmarshal(b, &m.present.seen); err != nil {
		return fmt.Errorf("read when minions were seen: %w", err)
	}
	return nil
}

// keepSeen writes down when minions were seen, now and then and at the end.
func (m *Master) keepSeen() {
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	for m.ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
		}
		if err := m.storeSeen(); err != nil {
			m.log.Error("when minions were seen is not recorded", "err", err)
		}
	}
}

func (m *Master) storeSeen() error {
	seen := m.present.everSeen(time.Now().Truncate(time.Second))
	if len(seen) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), storeTime)
	defer cancel()
	table, err := m.journal.Table(ctx, seenTable)
	if err != nil {
		return err
	}
	b, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	return table.Put(ctx, seenKey, b)
}

// lastSeen says when a minion was connected last, and where.
func (m *Master) lastSeen(seen time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "this master"
	}
	if seen.IsZero() {
		return "it was never seen at " + host
	}
	return "last seen " + seen.Format("2006-01-02 15:04:05") + " at " + host
}
