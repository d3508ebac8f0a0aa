package membership

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
)

// met are the members that were linked, so that they can be removed after they are gone: since the
// start, and in a file also those before.
type met struct {
	path string // of the file
	log  *slog.Logger

	throttle logging.Throttle

	mu    sync.Mutex
	list  []member.Removal  // since the start
	kept  map[string]string // what the file has, fingerprints by names; nil before it was read
	names []string          // that the file may have
}

// meet remembers the members that are linked.
func (m *met) meet(linked []member.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range linked {
		m.list = slices.DeleteFunc(m.list, func(r member.Removal) bool { return r.Name == one.Name })
		m.list = append(m.list, member.Removal{Fingerprint: one.Key.SHA256(), Name: one.Name})
	}
	if err := m.keep(); err != nil {
		m.throttle.Log(m.log, slog.LevelWarn, "keep", 1, "the members that were linked are not kept for a later removal", "err", err)
	}
}

// keep writes the file, if that would change. It has the members in cluster_peers only, so that it cannot
// grow. The caller holds the lock.
func (m *met) keep() error {
	if m.path == "" {
		return nil
	}
	kept, err := m.read()
	if err != nil {
		return err
	}
	list := maps.Clone(kept)
	for _, one := range m.list {
		list[one.Name] = one.Fingerprint
	}
	maps.DeleteFunc(list, func(name, _ string) bool { return !slices.Contains(m.names, name) })
	if maps.Equal(list, kept) {
		return nil
	}
	if err := member.WriteKnown(m.path, list); err != nil {
		return err
	}
	m.kept = list
	return nil
}

// read returns what the file has. The caller holds the lock.
func (m *met) read() (map[string]string, error) {
	if m.kept != nil || m.path == "" {
		return m.kept, nil
	}
	list, err := member.ReadKnown(m.path)
	if err == nil {
		m.kept = list
	}
	return list, err
}

// since returns the members that were linked since the start.
func (m *met) since() []member.Removal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list)
}

// ever returns the members that were linked at any time, and those of a list of removed ones: the key
// that each name had last. What was linked counts more than the list, since a member may have got a new
// key.
func (m *met) ever(removed []member.Removal) ([]member.Removal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, err := m.read()
	list := slices.Clone(m.list)
	add := func(one member.Removal) {
		if one.Name != "" && !slices.ContainsFunc(list, func(r member.Removal) bool { return r.Name == one.Name }) {
			list = append(list, one)
		}
	}
	for name, finger := range kept {
		add(member.Removal{Fingerprint: finger, Name: name})
	}
	for _, one := range slices.Backward(removed) { // the newest first
		add(one)
	}
	return list, err
}
