// Package upload gives all masters of a system the files that minions upload. Each file is stored in
// tables of the journal, with its copies, before its minion hears that it was taken; and the directory of
// each master follows these tables.
//
// The tables are the truth, and the directory is where people read. What a file may be called, and how
// it gets into the directory, is package fileserver's.
package upload

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/semaphore"
)

// Names of the tables. A backup reads them in this order: what refers to pieces first.
const (
	filesTable    = "pushed"     // an entry for each file, also for those that were removed
	piecesTable   = "pusheddata" // the content
	underwayTable = "pushing"    // of each member: which pieces it is about to store or to remove
)

const (
	// pieceSize is how much of a file one entry has. Pieces are stored one after the other, so that
	// events never wait for more than one of each file.
	pieceSize = 256 << 10
	// maxStoring is how many files a member stores at a time.
	maxStoring = 2
	// readTime is how long Room waits after a start until it is known what is stored.
	readTime = 10 * time.Second
)

// Options are what Files is made with.
type Options struct {
	Journal *journal.Journal
	Dir     string              // the directory of Uploads, for the note how far it follows
	Uploads *fileserver.Uploads // puts files into the directory
	Log     *slog.Logger
}

// Files are the files of all minions, at all masters. It implements fileserver.Shared.
type Files struct {
	Options
	files, pieces, underway *journal.Table
	update                  func(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) // of files
	turns                   *semaphore.Keyed
	throttle                logging.Throttle
	index                   index
	note                    note          // how far the directory follows; used by follow only
	from                    uint64        // how far it followed at the start
	read                    chan struct{} // closed when all that was stored at the start is known
	wake                    chan struct{} // see again
	mu                      sync.Mutex
	storing                 map[string]bool             // changes that this member works on, by their names
	whole                   map[salt.MinionID]uint64    // Made of directories that had all files when they were looked at last
	looked                  map[salt.MinionID]time.Time // when lookSoon has looked last
	left                    atomic.Bool                 // some were not ended
}

// Open opens what several masters have in common, nil for a single master; to its directory goes what
// is left in its store of the time when it was one of several.
func Open(ctx context.Context, o Options) (*Files, error) {
	f := &Files{
		Options: o, turns: semaphore.New(maxStoring), index: newIndex(), read: make(chan struct{}), wake: make(chan struct{}, 1), storing: map[string]bool{}, whole: map[salt.MinionID]uint64{}, looked: map[salt.MinionID]time.Time{},
	}
	if journal.Copies(o.Journal) == 0 {
		return nil, f.openAlone(ctx)
	}
	var err error
	if f.files, err = o.Journal.Table(ctx, filesTable); err != nil {
		return nil, err
	}
	f.update = f.files.Update
	if f.pieces, err = o.Journal.Table(ctx, piecesTable); err != nil {
		return nil, err
	}
	if f.underway, err = o.Journal.OwnTable(ctx, underwayTable); err != nil {
		return nil, err
	}
	if f.note, err = readNote(o.Dir, f.files.Created()); err != nil {
		return nil, err
	}
	f.from = f.note.Revision
	f.left.Store(true) // an earlier process may have left some
	o.Uploads.Shared = f
	return f, nil
}

// Run lets the directory follow until ctx ends. It does nothing for a single master.
func (f *Files) Run(ctx context.Context) {
	if f == nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { f.watch(ctx) })
	wg.Go(func() { f.follow(ctx) })
	wg.Wait()
}

// Room implements fileserver.Shared.
func (f *Files) Room(ctx context.Context, id salt.MinionID) error {
	if err := f.known(ctx); err != nil {
		return err
	}
	err := f.Uploads.Allows(f.index.usage(id))
	if err == nil {
		return nil
	}
	f.lookSoon(ctx, id) // somebody may just have made room
	return f.Uploads.Allows(f.index.usage(id))
}

// known waits until it is known what is stored.
func (f *Files) known(ctx context.Context) error {
	if err := f.Journal.Err(); err != nil {
		return fmt.Errorf("%w: %w", journal.ErrStore, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readTime, journal.ErrLate)
	defer cancel()
	select {
	case <-f.read:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("read which files are stored: %w", context.Cause(ctx))
	}
}

// soon is how long lookSoon does not look again at the files of a minion, which can call it as often as it likes.
const soon = 5 * time.Second

// lookSoon looks what somebody has removed of the files of a minion, unless it has done so just before.
func (f *Files) lookSoon(ctx context.Context, id salt.MinionID) {
	if f.mayLook(id, time.Now()) {
		f.removeMissing(ctx, f.index.placed(id))
	}
}

func (f *Files) mayLook(id salt.MinionID, at time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.Sub(f.looked[id]) < soon {
		return false
	}
	f.looked[id] = at
	return true
}

// again lets follow look what has come, or was not ended.
func (f *Files) again() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}
