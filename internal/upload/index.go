package upload

import (
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/salt"
)

// file is a file as the newest entry has it.
type file struct {
	entry
	revision uint64
	placed   bool           // the directory has it
	pauses   backoff.Pauses // these and busy are used by follow only
	busy     backoff.Pauses // while the minion was uploading something
	due      time.Time      // when it is tried again to place it; used of what is in later
}

// index is what is known of the entries, and which of them the directory does not follow yet.
type index struct {
	mu    sync.Mutex
	files map[string]*file
	of    map[salt.MinionID]map[string]*file // the same, without those that were removed
	queue []*file                            // in the order of revisions; some are replaced meanwhile
	later []*file                            // that could not be placed, and are tried again when they are due
	last  uint64                             // the newest revision that has come
}

func newIndex() index {
	return index{files: map[string]*file{}, of: map[salt.MinionID]map[string]*file{}}
}

// add takes a newer entry. One that is placed needs no more work.
func (x *index) add(f *file) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := f.key()
	x.last, x.files[key] = max(x.last, f.revision), f
	all := x.of[f.Minion]
	switch {
	case f.removed():
		if delete(all, key); len(all) == 0 {
			delete(x.of, f.Minion)
		}
	case all == nil:
		x.of[f.Minion] = map[string]*file{key: f}
	default:
		all[key] = f
	}
	if !f.placed {
		x.queue = append(x.queue, f)
	}
}

// skip takes an entry that is about no file.
func (x *index) skip(revision uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = max(x.last, revision)
}

// next returns the next file that is to be placed, nil if there is none: the new ones first, then of those that
// could not be placed the one that was due first, if that was before now.
func (x *index) next(now time.Time) *file {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 {
		f := x.queue[0]
		if x.files[f.key()] == f {
			return f
		}
		x.queue = x.queue[1:]
	}
	for len(x.later) > 0 {
		at := x.soonest()
		f := x.later[at]
		if f.due.After(now) {
			return nil
		}
		if x.files[f.key()] == f {
			return f
		}
		x.later = slices.Delete(x.later, at, at+1)
	}
	return nil
}

// soonest returns the place in later of what is due first; there is one.
func (x *index) soonest() (at int) {
	for i, f := range x.later {
		if f.due.Before(x.later[at].due) {
			at = i
		}
	}
	return at
}

// due returns when a file is to be tried again, and whether there is one.
func (x *index) due() (at time.Time, some bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.later) == 0 {
		return at, false
	}
	return x.later[x.soonest()].due, true
}

// placedAt notes that the directory has the file that next has returned. If that was removed, it may have been
// in the way of others of the minion: they are tried at once.
func (x *index) placedAt(f *file) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.take(f)
	f.placed = true
	f.pauses.Reset()
	f.busy.Reset()
	if !f.removed() {
		return
	}
	for _, other := range x.later {
		if other.Minion == f.Minion {
			other.due = time.Now()
		}
	}
}

// postpone notes that the file which next has returned could not be placed now, and is tried again after a
// pause.
func (x *index) postpone(f *file, pause time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.take(f)
	f.due = time.Now().Add(pause)
	x.later = append(x.later, f)
}

// take removes the file that next has returned from where it waited.
func (x *index) take(f *file) {
	if len(x.queue) > 0 && x.queue[0] == f {
		x.queue = x.queue[1:]
		return
	}
	x.later = slices.DeleteFunc(x.later, func(one *file) bool { return one == f })
}

// lost puts a file that was placed into the queue again.
func (x *index) lost(f *file) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f.placed {
		f.placed = false
		x.queue = append(x.queue, f)
	}
}

// upTo returns the revision up to which the directory follows.
func (x *index) upTo() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	upto := x.last
	for _, list := range [][]*file{x.queue, x.later} {
		for _, f := range list {
			if x.files[f.key()] == f {
				upto = min(upto, f.revision-1)
			}
		}
	}
	return upto
}

// at returns the file of a minion with this path, nil if nothing was ever stored there.
func (x *index) at(id salt.MinionID, name string) *file {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.files[keyOf(id, name)]
}

// conflict returns a file of a minion without which there could be one with this path: it is where a directory
// would have to be, or in a directory of that name. nil if there is none.
func (x *index) conflict(id salt.MinionID, name string) *file {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.of[id] {
		if strings.HasPrefix(name, f.Path+"/") || strings.HasPrefix(f.Path, name+"/") {
			return f
		}
	}
	return nil
}

// forgettable returns the removed files of before a time of which the directory knows, at most so many.
func (x *index) forgettable(before time.Time, most int) (list []*file) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.files {
		if len(list) < most && f.removed() && f.placed && f.Time.Before(before) {
			list = append(list, f)
		}
	}
	return list
}

// forget drops a file that was removed, unless there is a newer one.
func (x *index) forget(f *file) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if key := f.key(); x.files[key] == f {
		delete(x.files, key)
	}
}

// usage returns what a minion has stored.
func (x *index) usage(id salt.MinionID) (used fileserver.Usage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	dirs := map[string]bool{".": true}
	for _, f := range x.of[id] {
		used.Files, used.Bytes = used.Files+1, used.Bytes+f.Size
		for dir := path.Dir(f.Path); !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	used.Dirs = len(dirs)
	return used
}

// placed returns the files of a minion that the directory has; those of all minions for "".
func (x *index) placed(id salt.MinionID) (list []*file) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for of, all := range x.of {
		if id != "" && of != id {
			continue
		}
		for _, f := range all {
			if f.placed {
				list = append(list, f)
			}
		}
	}
	return list
}

// has reports whether a minion has files.
func (x *index) has(id salt.MinionID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of[id] != nil
}

// seen returns the newest revision that has come.
func (x *index) seen() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}
