package upload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
)

// noteFile is the file in the directory with the note. No minion has such an id.
const noteFile = ".follows"

// note says how far the directory follows the entries: what is older than Revision is in place. So
// what is missing was removed by somebody, and what differs is as they want it.
type note struct {
	Table    time.Time `json:"table"` // when that was made, see journal.Table.Created
	Revision uint64    `json:"revision"`

	dir     string
	follows bool // the directory follows; else it is compared with all entries, and has files of its own
}

// readNote reads the note of a directory. One about another table does not count.
func readNote(dir string, table time.Time) (note, error) {
	fresh := note{Table: table, dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, noteFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return note{}, err
	}
	n := note{dir: dir, follows: true}
	if err := json.Unmarshal(text, &n); err != nil || !n.Table.Equal(table) {
		return fresh, nil //nolint:nilerr // then everything is compared
	}
	return n, nil
}

// write notes a revision, if it is another one.
func (n *note) write(revision uint64) error {
	path := filepath.Join(n.dir, noteFile)
	if _, err := os.Lstat(path); err == nil && revision == n.Revision {
		return nil
	}
	now := note{Table: n.Table, Revision: revision}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := atomicfile.MakeDir(n.dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return err
	}
	n.Revision = revision
	return nil
}

// forgetNote removes the note of a directory, which follows nothing any more.
func forgetNote(dir string) error {
	err := os.Remove(filepath.Join(dir, noteFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget how far %s follows other masters: %w", dir, err)
	}
	return nil
}
