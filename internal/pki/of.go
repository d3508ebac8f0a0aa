package pki

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/salt"
)

// Of returns the keys of one id, whatever their state. Files without a usable key are left out;
// err reports them.
func (s *Store) Of(id salt.MinionID) ([]Entry, error) {
	var entries []Entry
	var problems []error
	for _, p := range places {
		for _, name := range p.names(id) {
			path := filepath.Join(s.dir, p.dir, name)
			key, err := s.readIn(p, name)
			if err != nil {
				problems = append(problems, err)
			}
			if key.IsZero() {
				continue
			}
			e := Entry{ID: id, State: p.state, Key: key, Path: path}
			if info, err := os.Stat(path); err == nil {
				e.Modified = info.ModTime()
			}
			entries = append(entries, e)
		}
	}
	return entries, errors.Join(problems...)
}
