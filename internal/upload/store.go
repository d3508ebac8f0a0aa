package upload

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// Store implements fileserver.Shared.
func (f *Files) Store(ctx context.Context, id salt.MinionID, c fileserver.Upload, content io.ReadSeeker) error {
	release, err := f.turns.Acquire(ctx, string(id))
	if err != nil {
		return err
	}
	defer release()
	if err := f.Room(ctx, id); err != nil { // other members may have taken some meanwhile
		return err
	}
	if err := f.fits(ctx, id, c.Path); err != nil {
		return err
	}
	// A minion that goes meanwhile leaves nothing half done, which would have to be marked for ever.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	return f.store(ctx, entry{Minion: id, Path: c.Path, Size: c.Size, SHA256: c.SHA256, Time: c.Time}, content, nil)
}

// fits returns an error if there are files at members without which there could be one with this path.
func (f *Files) fits(ctx context.Context, id salt.MinionID, name string) error {
	if f.index.conflict(id, name) != nil {
		f.lookSoon(ctx, id) // somebody may just have removed it
	}
	switch other := f.index.conflict(id, name); {
	case other == nil:
		return nil
	case len(other.Path) < len(name):
		return fmt.Errorf("%w: %q is a file, which all masters have", fileserver.ErrPath, other.Path)
	default:
		return fmt.Errorf("%w: %q is a directory, which all masters have", fileserver.ErrPath, name)
	}
}

// storeTime is how long storing a file may take.
const storeTime = 5 * time.Minute

// change is a change of an entry that is under way. It is stored before the first piece, so that the
// next start of this member finds the pieces which nothing refers to. Those of a member that never
// comes back stay: maxStoring objects at most.
type change struct {
	Minion salt.MinionID `json:"minion"`
	Path   string        `json:"path"`
	New    object        `json:"new"`
	Old    object        `json:"old"`
}

// tries is how often an upload is begun that others overtake: the minion is connected elsewhere, too.
const tries = 5

// store stores a file in place of what is there, or only in place of what was there at the revision
// after: then the error is journal.ErrChanged if it is no longer so.
func (f *Files) store(ctx context.Context, e entry, content io.ReadSeeker, after *uint64) error {
	for range tries {
		now, err := f.files.Entry(ctx, e.key())
		if err != nil {
			return err
		}
		if after != nil && now.Revision != *after {
			return journal.ErrChanged
		}
		e.object = object{Name: rand.Text(), Pieces: int((e.Size + pieceSize - 1) / pieceSize)}
		done := f.begin(e.Name)
		if err = f.try(ctx, e, content, now); !errors.Is(err, journal.ErrChanged) {
			done(err)
			return err
		}
		defer done(err) // at the end: what is left may be looked after by storing the entry as it is, which would overtake the next try
	}
	return fmt.Errorf("store %q of %s: %w", e.Path, e.Minion, journal.ErrChanged)
}

// try stores a file in place of an entry. Its object is new: that of an earlier try may have been stored, without
// an answer, and replaced, and then its pieces are removed.
func (f *Files) try(ctx context.Context, e entry, content io.ReadSeeker, now journal.TableEntry) error {
	c := change{Minion: e.Minion, Path: e.Path, New: e.object, Old: objectOf(now)}
	if err := f.announce(ctx, e.Name, c); err != nil {
		return err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := f.write(ctx, e.object, content); err != nil {
		return err
	}
	if err := f.put(ctx, e, now.Revision); err != nil {
		return err
	}
	f.clear(ctx, e.Name, c)
	return nil
}

// begin notes that this member works on a change. done is called with the error of it: what is left
// is looked after then.
func (f *Files) begin(name string) (done func(err error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.storing[name] = true
	return func(err error) {
		f.mu.Lock()
		delete(f.storing, name)
		f.mu.Unlock()
		if err != nil {
			f.left.Store(true)
			f.again()
		}
	}
}

func (f *Files) announce(ctx context.Context, name string, c change) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return f.underway.Keep(ctx, name, text)
}

// write stores the pieces of an object, one after the other.
func (f *Files) write(ctx context.Context, o object, content io.Reader) error {
	piece := make([]byte, pieceSize)
	for n := range o.Pieces {
		size, err := io.ReadFull(content, piece)
		if err != nil && !(errors.Is(err, io.ErrUnexpectedEOF) && n == o.Pieces-1) {
			return err
		}
		if err := f.pieces.Keep(ctx, o.piece(n), piece[:size]); err != nil {
			return err
		}
	}
	return nil
}

// put stores an entry if the one before it has this revision.
func (f *Files) put(ctx context.Context, e entry, revision uint64) error {
	text, err := json.Marshal(e)
	if err == nil {
		_, err = f.update(ctx, e.key(), text, revision)
	}
	return err
}

// objectOf returns the object of an entry as it is stored.
func objectOf(e journal.TableEntry) object {
	if e.Value == nil {
		return object{}
	}
	stored, err := parseEntry(e.Key, e.Value)
	if err != nil {
		return object{} // whatever it refers to, it is not of this package
	}
	return stored.object
}

// clear removes the pieces of a change that the entry, which is stored, does not refer to. What fails
// is done by the next look.
func (f *Files) clear(ctx context.Context, name string, c change) {
	err := f.removePieces(ctx, c.Old)
	if err == nil {
		err = f.underway.Remove(ctx, name)
	}
	if err != nil {
		f.Log.Debug("pieces of a file that was replaced are removed later", "err", err)
		f.left.Store(true)
	}
}

func (f *Files) removePieces(ctx context.Context, o object) error {
	for n := range o.Pieces {
		if err := f.pieces.Remove(ctx, o.piece(n)); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes a file at all members, also one that could not be put into their directories. If none is
// stored, the error wraps fileserver.ErrNotFound.
func (f *Files) Remove(ctx context.Context, id salt.MinionID, name string) error {
	if err := f.known(ctx); err != nil {
		return err
	}
	one := f.index.at(id, name)
	if one == nil || one.removed() {
		return fmt.Errorf("%w: %q of %s", fileserver.ErrNotFound, name, id)
	}
	return f.remove(ctx, one)
}

// remove removes a file that somebody has removed from the directory here, unless it was replaced.
func (f *Files) remove(ctx context.Context, old *file) (err error) {
	e := entry{Minion: old.Minion, Path: old.Path, Time: time.Now().UTC()}
	name := rand.Text()
	done := f.begin(name)
	defer func() { done(err) }()
	c := change{Minion: e.Minion, Path: e.Path, Old: old.object}
	if err := f.announce(ctx, name, c); err != nil {
		return err
	}
	if err = f.put(ctx, e, old.revision); err == nil {
		f.clear(ctx, name, c)
	}
	return err
}

// finishChanges ends the changes that this member has begun and no longer works on: of both objects
// the one that the entry refers to stays.
func (f *Files) finishChanges(ctx context.Context) error {
	left := map[string]change{}
	err := f.underway.Each(ctx, func(name string, value []byte) {
		var c change
		if json.Unmarshal(value, &c) == nil && !f.works(name) {
			left[name] = c
		}
	})
	for name, c := range left {
		if !c.New.sane() || !c.Old.sane() { // another member has written it
			f.Log.Error("a change of a file of a minion is ignored: it has too many pieces", "minion", c.Minion)
			if err := f.underway.Remove(ctx, name); err != nil {
				return err
			}
			continue
		}
		if err := f.finish(ctx, name, c); err != nil {
			return err
		}
	}
	return err
}

func (f *Files) works(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.storing[name]
}

func (f *Files) finish(ctx context.Context, name string, c change) error {
	now, err := f.files.Entry(ctx, keyOf(c.Minion, c.Path))
	if err != nil {
		return err
	}
	stored := objectOf(now)
	if stored != c.New {
		// The change may still be on its way to the store. After this it is too late.
		if err := f.fence(ctx, c, now); err != nil {
			return err
		}
	}
	for _, o := range []object{c.New, c.Old} {
		if o == stored {
			continue
		}
		if err := f.removePieces(ctx, o); err != nil {
			return err
		}
	}
	return f.underway.Remove(ctx, name)
}

// fence stores an entry anew as it is, so that no change of the one before is stored any more.
func (f *Files) fence(ctx context.Context, c change, now journal.TableEntry) error {
	if now.Value == nil {
		return f.put(ctx, entry{Minion: c.Minion, Path: c.Path, Never: true, Time: time.Now().UTC()}, now.Revision)
	}
	_, err := f.files.Update(ctx, now.Key, now.Value, now.Revision)
	return err
}
