package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// CheckJoin checks what a single master needs to take its store into a cluster: no other store, and
// room on the disk for the copy that it is read from.
func CheckJoin(cacheDir string) error {
	store, other := StoreDir(cacheDir, true), StoreDir(cacheDir, false)
	full, err := hasData(store)
	if err != nil {
		return err
	}
	if full || wasMember(store) {
		return salt.WithHint(fmt.Errorf("the store %s is not empty: this machine was a member before", store), "move it away")
	}
	size, err := treeSize(other)
	if err != nil {
		return err
	}
	fs, err := posix.StatFS(cacheDir)
	if err != nil {
		return err
	}
	if free := fs.Available * fs.BlockSize; free < 3*size { // the copy, the backup that is made of it, and the new store
		return salt.WithHint(fmt.Errorf("the disk has %d MiB free below %s, and the move takes %d MiB", free>>20, cacheDir, 3*size>>20), "free some space, or keep less: event_retention, keep_jobs_seconds")
	}
	return nil
}

// wasMember reports whether a store has what the server keeps about a cluster: it brings its streams back when most members have it.
func wasMember(store string) bool {
	found, err := filepath.Glob(filepath.Join(store, "jetstream", "*", "_js_", "_meta_"))
	return err == nil && len(found) > 0
}

// treeSize is the size of all files in a directory, 0 if it is missing. Files that are removed
// meanwhile do not count.
func treeSize(dir string) (size uint64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			size += uint64(info.Size())
		}
		return err
	})
	return size, err
}
