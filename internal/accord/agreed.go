package accord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// agreements are what is in force at a member, of each key.
type agreements struct {
	table Table
	mu    sync.Mutex // not held over I/O; a key is handled by one goroutine at a time
	all   map[string]agreement
}

// readAgreements makes them of what is stored.
func readAgreements(table Table, stored map[string][]byte) (*agreements, error) {
	a := &agreements{table: table, all: map[string]agreement{}}
	var bad error
	for key, value := range stored {
		var one agreement
		if err := json.Unmarshal(value, &one); err != nil {
			bad = cmp.Or(bad, fmt.Errorf("what was agreed about %.80q cannot be read: %w", key, err))
		}
		a.all[key] = one
	}
	return a, bad
}

// clearAgreements forgets what is stored, which is about another key directory.
func clearAgreements(ctx context.Context, table Table, stored map[string][]byte) (a *agreements, err error) {
	for key := range stored {
		err = errors.Join(err, table.Remove(ctx, key))
	}
	return &agreements{table: table, all: map[string]agreement{}}, err
}

func (a *agreements) of(key string) agreement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[key]
}

func (a *agreements) keys() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.all))
}

// keep stores what is in force.
func (a *agreements) keep(ctx context.Context, key string, one agreement) error {
	a.mu.Lock()
	old, known := a.all[key]
	a.mu.Unlock()
	one.At = old.At
	if known && old == one {
		return nil
	}
	one.At = time.Now().Unix()
	value, err := json.Marshal(one)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		err = a.table.Keep(ctx, key, value)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnwritten, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[key] = one
	return nil
}

// forget removes what was in force.
func (a *agreements) forget(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := a.table.Remove(ctx, key); err != nil {
		return fmt.Errorf("%w: %w", errUnwritten, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, key)
	return nil
}
