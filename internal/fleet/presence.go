package fleet

import (
	"context"
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
	self   string // the name of this member; "" for a single master
	mu     sync.Mutex
	ready  map[salt.MinionID]map[string]bool // the inboxes of its connections, and other members that it is connected to
	framed map[salt.MinionID]string          // the inbox of its connection, if that speaks protocol 1
	seen   map[salt.MinionID]time.Time       // when a minion's last connection ended
	at     map[salt.MinionID]string          // of a cluster, at which member that was, as far as it is known
	erased map[salt.MinionID]time.Time       // of a cluster, whose times were forgotten here, and when
	joined map[salt.MinionID]bool            // joined since the last call of changes; nil while nobody announces
	left   map[salt.MinionID]bool
	due    map[int]bool // the shards of the times that have changed since they were recorded
	single bool         // the times are still stored as earlier versions stored them
}

func newPresence() *Presence {
	return &Presence{
		ready: map[salt.MinionID]map[string]bool{}, framed: map[salt.MinionID]string{}, seen: map[salt.MinionID]time.Time{}, at: map[salt.MinionID]string{}, erased: map[salt.MinionID]time.Time{},
		due: map[int]bool{},
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
		p.due[shardOf(id)] = true
		note(p.joined, id)
		delete(p.erased, id)
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
	p.set(id, now, p.member(inbox))
	p.due[shardOf(id)] = true
	note(p.left, id)
	return true
}

// note adds a minion to those that have joined or left, if somebody announces that: otherwise they would accumulate.
func note(of map[salt.MinionID]bool, id salt.MinionID) {
	if of != nil {
		of[id] = true
	}
}

// announces begins to note who joins and leaves, beginning with those that are there; the end stops that.
func (p *Presence) announces() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joined, p.left = make(map[salt.MinionID]bool, len(p.ready)), map[salt.MinionID]bool{}
	for id := range p.ready {
		p.joined[id] = true
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.joined, p.left = nil, nil
	}
}

// Connected reports whether id is connected, and if not, when it last was; zero for never.
func (p *Presence) Connected(id salt.MinionID) (ready bool, lastSeen time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready[id] != nil, p.seen[id]
}

// set records when a minion was connected last, and at which member; "" if that is not known. The caller holds mu, or
// nobody else has p.
func (p *Presence) set(id salt.MinionID, seen time.Time, member string) {
	p.seen[id] = seen
	if member == "" {
		delete(p.at, id)
		return
	}
	p.at[id] = member
}

// member returns the member that one of the places of a minion is at; "" for a single master.
func (p *Presence) member(place string) string {
	if name, other := strings.CutPrefix(place, placeAt("")); other {
		return name
	}
	return p.self
}

// SeenAt returns the member that a minion was connected to last; "" if that is not known, and for a single master.
func (p *Presence) SeenAt(id salt.MinionID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[id]
}

// forget drops when a minion was connected, unless it is.
func (p *Presence) forget(id salt.MinionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.seen[id]; known && p.ready[id] == nil {
		delete(p.seen, id)
		delete(p.at, id)
		p.due[shardOf(id)] = true
		if p.self != "" {
			p.erased[id] = time.Now()
		}
	}
}

// everSeen returns which minions are or were connected.
func (p *Presence) everSeen() []salt.MinionID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.seen))
}

// inboxRoot begins the inboxes of connections, and nothing else under which a minion is ready.
const inboxRoot = "_INBOX."

// Here reports whether a minion is connected to this master itself.
func (p *Presence) Here(id salt.MinionID) bool {
	here, _ := p.places(id)
	return here
}

// places reports whether a minion is connected to this master itself, and whether it is connected to other members.
func (p *Presence) places(id salt.MinionID) (here, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for place := range p.ready[id] {
		if strings.HasPrefix(place, inboxRoot) {
			here = true
		} else {
			more = true
		}
	}
	return here, more
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

// firstAgain is when it is asked again whether this member fires the events, if that was not known.
const firstAgain = time.Second

// Announce fires salt/presence events until ctx ends, while first returns true: in a cluster one
// member fires them, for the minions of all. first is nil for a single master. A member that takes
// over cannot know which changes were fired before, so it fires those from then on. Changes are looked
// at after first, which may take seconds: a member that was cut off meanwhile sees the minions of the
// others again. While first has an error they are kept: nobody else fires them.
func (p *Presence) Announce(ctx context.Context, every time.Duration, events Events, first func(context.Context) (bool, error)) {
	defer p.announces()()
	tick := time.NewTicker(max(every, time.Second))
	defer tick.Stop()
	known, fires := first == nil, false
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-again:
		}
		fires, again = true, nil
		if first != nil {
			var err error
			if fires, err = first(ctx); err != nil {
				again = time.After(firstAgain)
				continue
			}
		}
		joined, left := p.changes()
		if !fires {
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
