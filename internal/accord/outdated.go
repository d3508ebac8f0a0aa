package accord

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Outdated returns a function for entries of the table of all members that come from a backup. It returns the
// minion of one that accepts a key which the key directory of this member does not: the key was deleted or
// rejected since. A directory that no member has used yet tells nothing about that.
func Outdated(pkiDir string) (func(key string, value []byte) (salt.MinionID, bool), error) {
	_, err := os.Lstat(filepath.Join(pkiDir, directoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return func(string, []byte) (salt.MinionID, bool) { return "", false }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look whether the key directory is newer: %w", err)
	}
	store, err := pki.OpenExistingStore(pkiDir)
	if err != nil {
		return nil, err
	}
	return func(key string, value []byte) (salt.MinionID, bool) {
		name, ok := nameOf(key)
		var e entry
		if !ok || json.Unmarshal(value, &e) != nil || e.Act != Accept {
			return "", false
		}
		entries, err := store.Of(name.ID)
		return name.ID, err != nil || find(entries, name).State != pki.Accepted
	}, nil
}
