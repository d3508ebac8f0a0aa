package clustertest

import (
	"context"
	"sync"

	"github.com/brinebus/brine/internal/journal"
)

// Table is a table in memory that several members share. It has no server, so that a test may let the time pass.
type Table struct {
	mu      sync.Mutex
	entries map[string]journal.TableEntry
	latest  uint64
	answer  func(key string) (stored bool, err error)
}

// Answer sets how updates are answered from now on: whether they are stored, and with which error. With nil they
// are.
func (m *Table) Answer(answer func(key string) (stored bool, err error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

// Entry returns an entry, as that of a journal.Table.
func (m *Table) Entry(_ context.Context, key string) (journal.TableEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	e.Key = key
	return e, nil
}

// Update stores an entry, as that of a journal.Table.
func (m *Table) Update(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, err := true, error(nil)
	if m.answer != nil {
		stored, err = m.answer(key)
	}
	if !stored {
		return 0, err
	}
	if m.entries[key].Revision != revision {
		return 0, journal.ErrChanged
	}
	if m.entries == nil {
		m.entries = map[string]journal.TableEntry{}
	}
	m.latest++
	m.entries[key] = journal.TableEntry{Value: value, Revision: m.latest}
	return m.latest, err
}
