package pki

import (
	"errors"
	"path/filepath"

	"github.com/brinebus/brine/internal/salt"
)

// Of returns the keys of one id, whatever their state. Files without a usable key are left out;
// err reports them.
func (s *Store) Of(id salt.MinionID) ([]Entry, error) {
	entries, problems := s.OfFiles(id)
	var all []error
	for _, p := range problems {
		all = append(all, p.Err)
	}
	return entries, errors.Join(all...)
}

// OfFiles is Of with the problem of each file.
func (s *Store) OfFiles(id salt.MinionID) (entries []Entry, problems []Problem) {
	for _, p := range places {
		for _, name := range p.names(id) {
			path := filepath.Join(s.dir, p.dir, name)
			key, err := s.readIn(p, name)
			if err != nil {
				problems = append(problems, Problem{path, err, id, p.state})
			}
			if key.IsZero() {
				continue
			}
			entries = append(entries, Entry{ID: id, State: p.state, Key: key, Path: path, Modified: modified(path)})
		}
	}
	return entries, problems
}
