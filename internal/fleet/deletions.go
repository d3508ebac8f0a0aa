package fleet

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of deleting what is stored of minions whose keys were deleted.
const (
	// deletionsAtOnce is how many are being deleted at a time.
	deletionsAtOnce = 16
	// deletionPause is the pause before what could not be deleted is tried again.
	deletionPause = 5 * time.Second
	// lastDeletions is how long the last try at a stop may take.
	lastDeletions = 5 * time.Second
)

// deletions are the entries of one table that do not count any more, and are not deleted yet. The
// store may need seconds for that: it elects a leader, for example. There are no more than minions
// with something to delete.
type deletions struct {
	table *journal.Table
	// reread reads the entry of a minion into memory, where it was forgotten.
	reread func(ctx context.Context, id salt.MinionID) error
	wake   chan struct{}
	logs   logging.Throttle

	mu  sync.Mutex
	due map[salt.MinionID]*deletion
}

// dueState is what is to be done with an entry that was to be deleted.
type dueState int

const (
	dueLater dueState = iota // it is not known yet
	dueNever                 // it may be another master's, since the key of its minion is accepted again
	dueNow
)

// deletion is that of one entry.
type deletion struct {
	mu   sync.Mutex // held while it is deleted
	done bool
	// revision is that of the entry; 0 if it is not known. A later one is of another member, and stays.
	revision uint64
}

func newDeletions(t *journal.Table) *deletions {
	return &deletions{table: t, wake: make(chan struct{}, 1), due: map[salt.MinionID]*deletion{}}
}

// add has the entry of a minion deleted, as it was at a revision, or as it is then for 0.
func (d *deletions) add(id salt.MinionID, revision uint64) {
	d.mu.Lock()
	d.due[id] = &deletion{revision: revision} // not that which may be under way: something may have been stored since
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// drop gives up a deletion: another member has stored something newer.
func (d *deletions) drop(id salt.MinionID) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.due, id)
}

// covers reports whether the entry of a minion with this revision is to be deleted.
func (d *deletions) covers(id salt.MinionID, revision uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.due[id]
	return one != nil && (one.revision == 0 || revision <= one.revision)
}

// deleteNow deletes the entry of a minion now, if that is due: before it is read or written again.
func (d *deletions) deleteNow(ctx context.Context, id salt.MinionID) error {
	d.mu.Lock()
	one := d.due[id]
	d.mu.Unlock()
	if one == nil {
		return nil
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.done {
		return nil
	}
	err := d.delete(ctx, id, one.revision)
	if err != nil && !errors.Is(err, journal.ErrChanged) {
		return err
	}
	one.done = true
	d.end(id, one)
	return nil
}

// delete deletes an entry. Where it is not known that there is one, it is looked for first: the mark that a deletion leaves
// would be one more for each id that anybody makes up.
func (d *deletions) delete(ctx context.Context, id salt.MinionID, revision uint64) error {
	if revision > 0 {
		return d.table.DeleteAt(ctx, string(id), revision)
	}
	if e, err := d.table.Entry(ctx, string(id)); err != nil || e.Value == nil {
		return err
	}
	return d.table.Delete(ctx, string(id))
}

// ids returns whose entries are due.
func (d *deletions) ids() []salt.MinionID {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]salt.MinionID, 0, len(d.due))
	for id := range d.due {
		list = append(list, id)
	}
	return list
}

// run deletes what is due until ctx ends, and tries once more then. state decides about the entry of
// a minion.
func (d *deletions) run(ctx context.Context, state func(salt.MinionID) dueState, log *slog.Logger) {
	for ctx.Err() == nil {
		var later <-chan time.Time
		if !d.all(ctx, state, log) {
			later = time.After(deletionPause)
		}
		select {
		case <-d.wake:
		case <-later:
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastDeletions)
	defer cancel()
	d.all(last, state, log)
}

// all deletes what is due; false if some of it could not be deleted.
func (d *deletions) all(ctx context.Context, state func(salt.MinionID) dueState, log *slog.Logger) bool {
	turns := make(chan struct{}, deletionsAtOnce)
	var wg sync.WaitGroup
	for _, id := range d.ids() {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			d.one(ctx, id, state, log)
		})
	}
	wg.Wait()
	return len(d.ids()) == 0
}

// one deletes the entry of a minion, if that is what its state says.
func (d *deletions) one(ctx context.Context, id salt.MinionID, state func(salt.MinionID) dueState, log *slog.Logger) {
	d.mu.Lock()
	one := d.due[id]
	d.mu.Unlock()
	switch state(id) {
	case dueNow:
		if err := d.deleteNow(ctx, id); err != nil && ctx.Err() == nil {
			d.logs.Log(log, slog.LevelWarn, "delete", 1, "what is stored of a deleted minion is not deleted yet", "minion", id, "err", err)
		}
	case dueNever:
		if err := d.reread(ctx, id); err != nil {
			d.logs.Log(log, slog.LevelWarn, "read", 1, "what is stored of a minion whose key is accepted again is not known yet", "minion", id, "err", err)
			return
		}
		d.end(id, one)
		log.Warn("what was stored of a deleted minion is not deleted: its key is accepted again", "minion", id, "table", d.table.Name())
	}
}

// end ends a deletion, unless there is a newer one.
func (d *deletions) end(id salt.MinionID, one *deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.due[id] == one {
		delete(d.due, id)
	}
}
