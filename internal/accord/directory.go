package accord

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
)

// directory is the key directory of a member, or of one of two masters. It and the table of what was in force there must belong
// together: what a directory lacks that is new, or comes from a backup, was not deleted, and what it
// has was not accepted again. So both have the same random text, which is renewed at each start and
// after each change.
type directory struct {
	path  string // of the file with the text
	table Table
	fresh bool // the table is about another directory
	// name is another random text, for as long as the two belong together. What is decided in that time
	// has it, too.
	name string

	mu    sync.Mutex
	mark  string // the text
	next  string // the table may have this one instead: there was no answer when it was stored
	dated bool   // something has changed since the text was renewed
}

// stamp is what the table has about its directory.
type stamp struct {
	Mark string `json:"mark"`
	Name string `json:"name"`
}

const (
	directoryFile = "minions/.member"
	mirrorFile    = "minions/.mirror" // of two masters: Outdated is about members
	directoryKey  = "directory"
)

// errDirectory is why a key that is missing does not count as deleted, and one that is there again not as
// accepted.
var errDirectory = errors.New("the key directory is not there, or was replaced while the daemon was running: restart it")

// openDirectory finds out whether a key directory and a table, which has this stamp, belong together.
func openDirectory(path string, stored []byte, table Table) (*directory, error) {
	var of stamp
	if json.Unmarshal(stored, &of) != nil {
		of.Mark = string(stored) // as an earlier version has stored it
	}
	d := &directory{path: path, table: table}
	there, err := os.ReadFile(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if d.fresh = of.Mark == "" || !slices.Contains(strings.Fields(string(there)), of.Mark); d.fresh {
		of = stamp{}
	}
	d.mark, d.name = of.Mark, cmp.Or(of.Name, rand.Text())
	return d, nil
}

// renew replaces the text. In between the directory has both: whenever the daemon is killed, it has
// that of the table. A directory that the table was not about does not get the text of the other one.
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
	value, err := json.Marshal(stamp{Mark: d.next, Name: d.name})
	if err == nil {
		err = d.table.Keep(ctx, directoryKey, value)
	}
	if err != nil {
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
