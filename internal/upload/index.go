package upload

import (
	"cmp"
	"path"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/salt"
)

// file is a file as the newest entry has it.
type file struct {
	entry
	revision uint64
	placed   bool // the directory has it
}

// index is what is known of the entries, and which of them the directory does not follow yet.
type index struct {
	mu    sync.Mutex
	files map[string]*file
	of    map[salt.MinionID]map[string]*file // the same, without those that were removed
	queue []*file                            // in the order of revisions; some are replaced meanwhile
	later []*file                            // that could not be placed, and are tried again
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
		delete(all, key)
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

// next returns the next file that is to be placed, nil if there is none.
func (x *index) next() *file {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 {
		f := x.queue[0]
		if x.files[f.key()] == f {
			return f
		}
		x.queue = x.queue[1:]
	}
	return nil
}

// done takes the file that next has returned off the queue.
func (x *index) done(f *file, placed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue = x.queue[1:]
	f.placed = placed
	if !placed {
		x.later = append(x.later, f)
	}
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

// retry puts those that could not be placed into the queue again.
func (x *index) retry() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue = append(x.queue, x.later...)
	slices.SortStableFunc(x.queue, func(a, b *file) int { return cmp.Compare(a.revision, b.revision) })
	x.later = nil
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

// seen returns the newest revision that has come.
func (x *index) seen() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}
