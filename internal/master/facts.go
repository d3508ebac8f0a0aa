package master

import (
	"context"
	"fmt"
	"sync"

	"brine/internal/journal"
	"brine/internal/salt"
	"brine/internal/value"
)

// facts is the master's store of what minions say of themselves. It lives in the
// journal and is held in memory to match targets.
type facts struct {
	table *journal.Table
	mu    sync.RWMutex
	byID  map[salt.MinionID]map[string]any
}

func openFacts(ctx context.Context, j *journal.Journal) (*facts, error) {
	table, err := j.Table(ctx, "grains")
	if err != nil {
		return nil, err
	}
	f := &facts{table: table, byID: map[salt.MinionID]map[string]any{}}
	err = table.Each(ctx, func(key string, b []byte) {
		id, err := salt.ParseMinionID(key)
		if err != nil {
			return
		}
		if v, err := value.Decode(b); err == nil {
			if grains, ok := v.(map[string]any); ok {
				f.byID[id] = grains
			}
		}
	})
	return f, err
}

// grains returns what id last said, nil for nothing. The map must not be changed.
func (f *facts) grains(id salt.MinionID) map[string]any {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byID[id]
}

func (f *facts) forget(ctx context.Context, id salt.MinionID) error {
	f.mu.Lock()
	delete(f.byID, id)
	f.mu.Unlock()
	return f.table.Delete(ctx, string(id))
}

func (f *facts) store(ctx context.Context, id salt.MinionID, v any) error {
	grains, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("grains of %s are no map", id)
	}
	b, err := value.Encode(grains)
	if err != nil {
		return err
	}
	if err := f.table.Put(ctx, string(id), b); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byID[id] = grains
	return nil
}
