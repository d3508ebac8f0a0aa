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
	Time     time.Time `json:"time"`  // when the directory followed last, also if nothing was new
	Revision uint64    `json:"revision"`

	dir     string
	written time.Time // the Time in the file
	follows bool      // the directory follows; else it is compared with all entries, and has files of its own
}

// noteAgain is how old the time in the file may become.
const noteAgain = 24 * time.Hour

// readNote reads the note of a directory. One about another table does not count, and none that is older than
// what removed files leave in the table.
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
	if err := json.Unmarshal(text, &n); err != nil || !n.Table.Equal(table) || now().Sub(n.Time) > awayTime {
		return fresh, nil //nolint:nilerr // then everything is compared
	}
	n.written = n.Time
	return n, nil
}

// write notes a revision, if it is another one or the note is old.
func (n *note) write(revision uint64) error {
	path := filepath.Join(n.dir, noteFile)
	if _, err := os.Lstat(path); err == nil && revision == n.Revision && n.Time.Sub(n.written) < noteAgain {
		return nil
	}
	text, err := json.Marshal(note{Table: n.Table, Time: n.Time, Revision: revision})
	if err != nil {
		return err
	}
	if err := atomicfile.MakeDir(n.dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return err
	}
	n.Revision, n.written = revision, n.Time
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
