package master

import (
	"slices"
	"sync"
	"time"

	"brine/internal/salt"
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
