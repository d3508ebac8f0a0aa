package accord

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
)

// directory is the key directory of a member. It and the table of what was in force there must belong
// together: what a directory lacks that is new, or comes from a backup, was not deleted, and what it
// has was not accepted again. So both have the same random text, which is renewed at each start and
// after each change.
type directory struct {
	path  string // of the file with the text
	table Table
	fresh bool // the table is about another directory

	mu    sync.Mutex
	mark  string // the text
	next  string // the table may have this one instead: there was no answer when it was stored
	dated bool   // something has changed since the text was renewed
}

const (
	directoryFile = "minions/.member"
	directoryKey  = "directory"
)

// errDirectory is why a key that is missing does not count as deleted.
var errDirectory = errors.New("the key directory is not there, or was replaced while the daemon was running: restart it")

// openDirectory finds out whether a key directory and a table, which has this text, belong together.
func openDirectory(dir, mark string, table Table) (*directory, error) {
	d := &directory{path: filepath.Join(dir, directoryFile), table: table, mark: mark}
	there, err := os.ReadFile(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	d.fresh = d.mark == "" || !slices.Contains(strings.Fields(string(there)), d.mark)
	return d, nil
}

// renew replaces the text. In between the directory has both: whenever the daemon is killed, it has
// that of the table.
func (d *directory) renew(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next != "" { // only two texts are possible: which one the table has must be certain first
		if err := d.store(ctx); err != nil {
			return err
		}
	}
	next := rand.Text()
	if err := atomicfile.Write(d.path, []byte(next+"\n"+d.mark+"\n"), 0o600); err != nil {
		return err
	}
	d.next = next
	if err := d.store(ctx); err != nil {
		return err
	}
	d.dated = false
	return nil
}

// store stores the next text in the table. The caller holds mu.
func (d *directory) store(ctx context.Context) error {
	if err := d.table.Keep(ctx, directoryKey, []byte(d.next)); err != nil {
		return fmt.Errorf("%w: %w", errUnwritten, err)
	}
	d.mark, d.next = d.next, ""
	return nil
}

// changed notes that a key was accepted or refused: an older copy of the directory lacks that.
func (d *directory) changed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dated = true
}

// update renews the text if something has changed.
func (d *directory) update(ctx context.Context) error {
	d.mu.Lock()
	dated := d.dated
	d.mu.Unlock()
	if !dated || !d.present() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return d.renew(ctx)
}

// present reports whether the key directory is the one that the daemon was started with.
func (d *directory) present() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	there, err := os.ReadFile(d.path)
	return err == nil && slices.Contains(strings.Fields(string(there)), d.mark)
}
