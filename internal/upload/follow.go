package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

const (
	// watchPause is the pause before the entries are watched again after an error.
	watchPause = time.Second
	// lookEvery is how often it is looked what somebody has removed from the directory.
	lookEvery = 15 * time.Second
	// placePause is the pause before it is tried again to place a file that could not be placed; then the
	// pauses double, up to longestPause: many files that nobody can place must not keep the disk busy.
	placePause   = 15 * time.Second
	longestPause = 10 * time.Minute
	// firstBusy is the pause before it is tried again to place a file of a minion that was uploading one; then
	// the pauses double, up to busyPause. The first one is short: as a rule it is that file, which is about to be
	// moved to its place. Until that is known here, it would come back if somebody removed it.
	firstBusy = 10 * time.Millisecond
	busyPause = time.Second
	// noteEvery is how often it is noted at least how far the directory follows, while it does.
	noteEvery = time.Second
)

// watch takes all entries, in their order, until ctx ends.
func (f *Files) watch(ctx context.Context) {
	for {
		err := f.files.Watch(ctx, f.index.seen(), f.take)
		if ctx.Err() != nil {
			return
		}
		f.throttle.Log(f.Log, slog.LevelWarn, "watch", 1, "the files that minions have uploaded at other members are not known at the moment", "err", err)
		if !backoff.Sleep(ctx, watchPause) {
			return
		}
	}
}

// take takes an entry; nil when all that were stored at the start have come.
func (f *Files) take(e *journal.TableEntry) error {
	if e == nil {
		f.allRead()
		return nil
	}
	defer f.again()
	parsed, err := parseEntry(e.Key, e.Value)
	if err != nil {
		if e.Value != nil {
			f.throttle.Log(f.Log, slog.LevelError, "entry", maxLogged, "an entry about a file of a minion is ignored", "key", e.Key, "err", err)
		}
		f.index.skip(e.Revision)
		return nil
	}
	// What comes later was stored since the start, whatever the note says: of the end of the table a power
	// cut may have taken what is noted.
	placed := e.Revision <= f.from && !f.allKnown() || parsed.Never
	f.index.add(&file{entry: parsed, revision: e.Revision, placed: placed})
	return nil
}

// maxLogged is how many files with mistakes of one kind are in the log in a minute.
const maxLogged = 10

// allKnown reports whether all that was stored at the start has come.
func (f *Files) allKnown() bool {
	select {
	case <-f.read:
		return true
	default:
		return false
	}
}

// allRead is called by the watch, again when it has begun anew.
func (f *Files) allRead() {
	if !f.allKnown() {
		close(f.read)
	}
}

// follow lets the directory follow the entries until ctx ends.
func (f *Files) follow(ctx context.Context) {
	select {
	case <-f.read: // before that, nobody knows what was replaced meanwhile
	case <-ctx.Done():
		return
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	f.placeAll(ctx)
	f.publish(ctx)
	f.removeMissing(ctx, f.index.placed(""))
	for {
		f.finishAll(ctx)
		f.placeAll(ctx)
		var due <-chan time.Time
		if at, some := f.index.due(); some {
			due = time.After(time.Until(at))
		}
		select {
		case <-due:
		case <-look.C:
			f.publish(ctx)
			f.removeMissing(ctx, f.index.placed(""))
			f.forgetOld(ctx)
			prune(f, time.Now())
		case <-f.wake:
		case <-ctx.Done():
			return
		}
	}
}

// finishAll ends what was begun by this member and is not worked on.
func (f *Files) finishAll(ctx context.Context) {
	if f.Journal.Err() != nil || !f.left.Swap(false) {
		return
	}
	if err := f.finishChanges(ctx); err != nil && ctx.Err() == nil {
		f.left.Store(true)
		f.throttle.Log(f.Log, slog.LevelWarn, "finish", 1, "pieces of files that were not stored completely are still there: they are removed later", "err", err)
	}
}

// placeAll places all new files, and those that are due.
func (f *Files) placeAll(ctx context.Context) {
	began := time.Now()
	noted := began
	for one := f.index.next(began); one != nil && ctx.Err() == nil; one = f.index.next(began) {
		err := f.place(ctx, one)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.postpone(one, err)
		} else {
			f.index.placedAt(one)
		}
		if err == nil && !f.isWhole(one.Minion) {
			f.look(ctx, one.Minion, f.index.placed(one.Minion))
		}
		if time.Since(noted) > noteEvery {
			f.noteDown()
			noted = time.Now()
		}
	}
	f.noteDown()
}

// postpone lets a file wait that could not be placed. If that is not because of the file, the pauses stay short.
func (f *Files) postpone(one *file, err error) {
	if errors.Is(err, fileserver.ErrBusy) {
		f.index.postpone(one, one.busy.Next(firstBusy, busyPause))
		return
	}
	f.throttle.Log(f.Log, slog.LevelError, "place", maxLogged, "a file that a minion has uploaded is not in the directory of this master: it is tried again", "minion", one.Minion, "path", one.Path, "err", err)
	longest := longestPause
	if f.Journal.Err() != nil || errors.Is(err, journal.ErrLate) {
		longest = placePause
	}
	f.index.postpone(one, one.pauses.Next(placePause, longest))
}

// place does with the directory what an entry says.
func (f *Files) place(ctx context.Context, one *file) error {
	if !f.note.follows && f.newer(one) {
		return nil // publish stores it
	}
	if one.removed() {
		return f.Uploads.Withdraw(one.Minion, one.Path)
	}
	err := f.Uploads.Place(one.Minion, one.upload(), func(w io.Writer) error { return f.fetch(ctx, one.object, w) })
	if errors.Is(err, errGone) && f.replaced(ctx, one) {
		return nil // the entry that comes next says by what
	}
	return err
}

// errGone means that the content of a file is not in the store.
var errGone = errors.New("a part of the file is not in the store")

// fetch writes the content of an object.
func (f *Files) fetch(ctx context.Context, o object, w io.Writer) error {
	for n := range o.Pieces {
		piece, err := f.pieces.Get(ctx, o.piece(n))
		if err != nil {
			return err
		}
		if piece == nil {
			return fmt.Errorf("%w: piece %d of %d", errGone, n+1, o.Pieces)
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

func (f *Files) replaced(ctx context.Context, one *file) bool {
	now, err := f.files.Entry(ctx, one.key())
	return err == nil && now.Revision != one.revision
}

// newer reports whether the directory has another file that is newer. It is asked only while the
// directory does not follow yet: it is that of a single master, or of the time before a backup.
func (f *Files) newer(one *file) bool {
	newer := false
	err := f.Uploads.Read(one.Minion, one.Path, func(c fileserver.Upload, _ io.ReadSeeker) error {
		newer = c.Time.After(one.Time) && (one.removed() || c.SHA256 != one.SHA256)
		return nil
	})
	return err == nil && newer
}

// removeMissing removes those of these files, which the directory had, that somebody has taken away
// here: so an operator can remove a file at any member.
func (f *Files) removeMissing(ctx context.Context, list []*file) {
	of := map[salt.MinionID][]*file{}
	for _, one := range list {
		of[one.Minion] = append(of[one.Minion], one)
	}
	for id, all := range of {
		if f.Journal.Err() != nil || ctx.Err() != nil {
			return
		}
		f.look(ctx, id, all)
	}
}

// byHand is how many files of a minion, or else half of them, may be missing at once if somebody has removed
// them. What a disk or a backup lacks is more.
const byHand = 20

// look looks which of the files of a minion, which the directory had, are missing. They were removed by
// hand only if all were there when it was looked last, since the start, and the directory was not made anew since. Otherwise
// the directory has lost them: they are placed again.
func (f *Files) look(ctx context.Context, id salt.MinionID, all []*file) {
	made, there := f.Uploads.Made(id), true
	var missing []*file
	for _, one := range all {
		gone, dir := f.Uploads.Missing(id, one.Path)
		if there = there && dir; gone {
			missing = append(missing, one)
		}
	}
	switch {
	case len(missing) == 0 && there:
		f.setWhole(id, made)
	case there && f.isWhole(id) && (len(missing) <= byHand || 2*len(missing) <= len(all)):
		for _, one := range missing {
			f.removeOne(ctx, one)
		}
	default:
		if len(missing) > 0 {
			f.throttle.Log(f.Log, slog.LevelWarn, "lost", maxLogged, "files of a minion are missing in the directory of this master: they are placed again", "minion", id, "missing", len(missing))
		}
		for _, one := range missing {
			f.index.lost(one)
		}
		f.again()
	}
}

// prune drops what need not be known any more: of minions that have no files, and that looks are long ago.
func prune(f *Files, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.looked, func(_ salt.MinionID, looked time.Time) bool { return at.Sub(looked) >= soon })
	maps.DeleteFunc(f.whole, func(id salt.MinionID, _ uint64) bool { return !f.index.has(id) })
}

func (f *Files) setWhole(id salt.MinionID, made uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.whole[id] = made
}

// isWhole reports whether the directory of a minion had all files when it was looked at last, and was
// not made anew since.
func (f *Files) isWhole(id salt.MinionID) bool {
	now := f.Uploads.Made(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	made, known := f.whole[id]
	return known && made == now
}

// removeOne removes a file that somebody has removed here at all members.
func (f *Files) removeOne(ctx context.Context, one *file) {
	err := f.remove(ctx, one)
	switch {
	case err == nil:
		f.Log.Info("a file of a minion was removed here by hand, and so at all members", "minion", one.Minion, "path", one.Path)
	case errors.Is(err, journal.ErrChanged): // it comes anew
	default:
		f.throttle.Log(f.Log, slog.LevelWarn, "remove", 1, "a file of a minion that was removed here by hand is still at the other members", "minion", one.Minion, "path", one.Path, "err", err)
	}
}

// noteDown notes how far the directory follows.
func (f *Files) noteDown() {
	if !f.note.follows {
		return
	}
	if err := f.note.write(f.index.upTo()); err != nil {
		f.throttle.Log(f.Log, slog.LevelError, "note", 1, "it is not noted how far the files of minions are followed: the next start compares all of them", "err", err)
	}
}

// publish stores the files that only this directory has, once, when it begins to follow: a single
// master has become one of several.
func (f *Files) publish(ctx context.Context) {
	if f.note.follows {
		return
	}
	err := f.Uploads.Each(func(id salt.MinionID, name string) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if one := f.index.at(id, name); one != nil && !one.Never && !f.newer(one) {
			return nil
		}
		return f.publishOne(ctx, id, name)
	})
	if err != nil {
		if ctx.Err() == nil {
			f.throttle.Log(f.Log, slog.LevelWarn, "publish", 1, "the files of minions that this master had are not all at the other members yet", "err", err)
		}
		return
	}
	f.note.follows, f.note.Time = true, now()
	f.noteDown()
}

// publishOne stores one of these files, unless somebody else stores another one at the same time.
func (f *Files) publishOne(ctx context.Context, id salt.MinionID, name string) error {
	if other := f.index.conflict(id, name); other != nil {
		f.Log.Error("a file that this master had of a minion stays here only: at other members there is another file in its way", "minion", id, "path", name, "other", other.Path)
		return nil
	}
	revision := uint64(0)
	if one := f.index.at(id, name); one != nil {
		revision = one.revision
	}
	err := f.Uploads.Read(id, name, func(c fileserver.Upload, content io.ReadSeeker) error {
		e := entry{Minion: id, Path: name, Size: c.Size, SHA256: c.SHA256, Time: c.Time.UTC()}
		return f.store(ctx, e, content, &revision)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, journal.ErrChanged):
		return nil
	case err == nil:
		f.Log.Info("a file that this master had of a minion is now at all members", "minion", id, "path", name)
	}
	return err
}
