package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
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
}

func shardOf(id salt.MinionID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // it never fails
	return int(h.Sum32() % seenShards)
}

// openPresence reads the times from before this start.
func openPresence(ctx context.Context, j *journal.Journal) (*Presence, error) {
	p := newPresence()
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
	for _, id := range s.Connected {
		p.seen[id], p.due[shardOf(id)] = until, true
	}
	for id, at := range s.Seen {
		if at.After(p.seen[id]) {
			p.seen[id] = at
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
		b, err := json.Marshal(s)
		if err == nil {
			err = p.table.Put(ctx, fmt.Sprint(seenShard, n), b)
		}
		if err != nil {
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

// takeDue returns the shards that have changed since the last call, and whether any minion is
// connected.
func (p *Presence) takeDue(now time.Time) (changed map[int]*shard, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
			s.Seen[id] = at
		}
	}
	for id := range p.ready {
		if s := changed[shardOf(id)]; s != nil {
			s.Connected = append(s.Connected, id)
		}
	}
	return changed, len(p.ready) > 0
}

// setDue has shards that were not written written later.
func (p *Presence) setDue(shards map[int]*shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range shards {
		p.due[n] = true
	}
}
