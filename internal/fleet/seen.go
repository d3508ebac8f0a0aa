package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// The times are stored in a table, so that "not connected" can be shown with a time after a
// restart. Each key has those of some minions, by a hash of their ids, and is written when one of
// them has connected or disconnected. It names the minions that are connected; until when they were,
// one more key says, so that a kill does not make their times older.
const (
	seenTable = "presence"
	seenKey   = "seen" // had all times in earlier versions
	seenShard = "seen-"
	aliveKey  = "alive"
	seenEvery = 15 * time.Second // pause between two records
	storeTime = 30 * time.Second
	// seenShards is such that those of 100,000 minions with the longest ids are far below the
	// megabyte that a message may have: some 250 KB each.
	seenShards = 128
)

// shard is the value of one key.
type shard struct {
	At        time.Time                   `json:"at"` // when it was written
	Connected []salt.MinionID             `json:"connected,omitempty"`
	Seen      map[salt.MinionID]time.Time `json:"seen,omitempty"`
	// Members has, for a cluster, at which member each of them is, or was last.
	Members map[string][]salt.MinionID `json:"members,omitempty"`
}

// members returns at which member each minion is, or was last.
func (s *shard) members() map[salt.MinionID]string {
	all := map[salt.MinionID]string{}
	for member, ids := range s.Members {
		for _, id := range ids {
			all[id] = member
		}
	}
	return all
}

// add adds that a minion was seen.
func (s *shard) add(id salt.MinionID, at time.Time, member string) {
	s.Seen[id] = at
	s.place(id, member)
}

func (s *shard) place(id salt.MinionID, member string) {
	if member == "" {
		return
	}
	if s.Members == nil {
		s.Members = map[string][]salt.MinionID{}
	}
	s.Members[member] = append(s.Members[member], id)
}

// unplace removes a minion from the member where it was before: of two, another member would take either.
func (s *shard) unplace(id salt.MinionID) {
	for member, ids := range s.Members {
		s.Members[member] = slices.DeleteFunc(ids, func(other salt.MinionID) bool { return other == id })
	}
}

func shardOf(id salt.MinionID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // it never fails
	return int(h.Sum32() % seenShards)
}

// openPresence reads the times from before this start, for the member of this name; "" for a single master.
func openPresence(ctx context.Context, j *journal.Journal, self string) (*Presence, error) {
	p := newPresence()
	p.self = self
	var err error
	if p.table, err = j.Table(ctx, seenTable); err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	if err := p.table.Each(ctx, func(key string, b []byte) { values[key] = b }); err != nil {
		return nil, err
	}
	var until time.Time
	if b := values[aliveKey]; b != nil {
		if err := until.UnmarshalText(b); err != nil {
			return nil, fmt.Errorf("read until when minions were seen: %w", err)
		}
	}
	if b := values[seenKey]; b != nil {
		if err := json.Unmarshal(b, &p.seen); err != nil {
			return nil, fmt.Errorf("read when minions were seen: %w", err)
		}
		p.extend(until)
		p.single = true
		for id := range p.seen {
			p.due[shardOf(id)] = true
		}
	}
	for key, b := range values {
		if strings.HasPrefix(key, seenShard) {
			if err := p.read(b, until); err != nil {
				return nil, fmt.Errorf("read when minions were seen: %w", err)
			}
		}
	}
	return p, nil
}

// read takes the times of a shard. Those that it calls connected are not any more, so it is due.
func (p *Presence) read(b []byte, until time.Time) error {
	var s shard
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s.At.After(until) {
		until = s.At
	}
	members := s.members()
	for _, id := range s.Connected {
		p.set(id, until, members[id])
		p.due[shardOf(id)] = true
	}
	for id, at := range s.Seen {
		if at.After(p.seen[id]) {
			p.set(id, at, members[id])
		}
	}
	return nil
}

// extend sets the time of the minions that were connected when an earlier version has written the
// times to until.
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
		if err := p.store(context.WithoutCancel(ctx), time.Now().Truncate(time.Second)); err != nil {
			log.Error("the times when minions were last seen are not recorded", "err", err)
		}
	}
}

// store writes the shards that have changed, and then until when the connected minions are: the
// other way round, those that are not connected any more would get that time.
func (p *Presence) store(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	changed, connected := p.takeDue(now)
	for n, s := range changed {
		if err := p.storeShard(ctx, n, s); err != nil {
			p.setDue(changed)
			return err
		}
		delete(changed, n)
	}
	if p.single {
		if err := p.table.Delete(ctx, seenKey); err != nil {
			return err
		}
		p.single = false
	}
	if !connected {
		return nil
	}
	return p.table.Put(ctx, aliveKey, []byte(now.Format(time.RFC3339)))
}

// seenTries is how often a shard is written that other members write at the same time.
const seenTries = 5

// storeShard writes a shard. In a cluster other members write it, too, and one that was cut off knows less: so none of
// the times that are stored goes back.
func (p *Presence) storeShard(ctx context.Context, n int, s *shard) error {
	key := fmt.Sprint(seenShard, n)
	if p.self == "" {
		b, err := json.Marshal(s)
		if err == nil {
			err = p.table.Put(ctx, key, b)
		}
		return err
	}
	err := journal.ErrChanged
	for tries := 0; tries < seenTries && errors.Is(err, journal.ErrChanged); tries++ {
		var e journal.TableEntry
		if e, err = p.table.Entry(ctx, key); err != nil {
			return err
		}
		p.merge(n, s, e.Value)
		var b []byte
		if b, err = json.Marshal(s); err == nil {
			_, err = p.table.Update(ctx, key, b, e.Revision)
		}
	}
	return err
}

// erasedTime is for how long times of a minion that was forgotten are not taken from another member: one that was cut off
// may still write what it knew, and hears of the deletion only then.
const erasedTime = 10 * time.Minute

// merge takes the times of a shard that another member may have stored into s, and into memory, where they are newer.
func (p *Presence) merge(n int, s *shard, stored []byte) {
	var other shard
	if stored == nil || json.Unmarshal(stored, &other) != nil {
		return // what cannot be read is replaced
	}
	members := other.members()
	p.mu.Lock()
	defer p.mu.Unlock()
	newer := func(id salt.MinionID, at time.Time) {
		if p.ready[id] == nil && p.erased[id].IsZero() && at.After(p.seen[id]) && shardOf(id) == n {
			p.set(id, at, members[id])
			s.unplace(id)
			s.add(id, at, members[id])
		}
	}
	for id, at := range other.Seen {
		newer(id, at)
	}
	for _, id := range other.Connected {
		newer(id, other.At)
	}
}

// takeDue returns the shards that have changed since the last call, and whether any minion is
// connected.
func (p *Presence) takeDue(now time.Time) (changed map[int]*shard, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.erased, func(_ salt.MinionID, at time.Time) bool { return time.Since(at) > erasedTime })
	changed = map[int]*shard{}
	for n := range p.due {
		changed[n] = &shard{At: now, Seen: map[salt.MinionID]time.Time{}}
	}
	clear(p.due)
	if len(changed) == 0 {
		return changed, len(p.ready) > 0
	}
	for id, at := range p.seen {
		if s := changed[shardOf(id)]; s != nil && p.ready[id] == nil {
			s.add(id, at, p.at[id])
		}
	}
	for id, places := range p.ready {
		if s := changed[shardOf(id)]; s != nil {
			s.Connected = append(s.Connected, id)
			s.place(id, p.member(oneOf(places)))
		}
	}
	return changed, len(p.ready) > 0
}

// oneOf returns the first place.
func oneOf(places map[string]bool) string { return slices.Min(slices.Collect(maps.Keys(places))) }

// setDue has shards that were not written written later.
func (p *Presence) setDue(shards map[int]*shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range shards {
		p.due[n] = true
	}
}
