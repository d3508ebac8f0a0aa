package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// leftFile is the file in the store of a member that has left its cluster, with the time.
const leftFile = "left"

func leftPath(cacheDir string) string { return filepath.Join(StoreDir(cacheDir, true), leftFile) }

// MarkLeft makes sure that a member which leaves its cluster does not start as a member again by
// mistake: the others no longer count it, and would again.
func MarkLeft(cacheDir string) error {
	return atomicfile.Write(leftPath(cacheDir), []byte(time.Now().UTC().Format(time.DateTime)+"\n"), 0o600)
}

// UnmarkLeft undoes MarkLeft.
func UnmarkLeft(cacheDir string) error {
	err := os.Remove(leftPath(cacheDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// hasLeft refuses to start a member that has left.
func hasLeft(cacheDir string) error {
	when, err := os.ReadFile(leftPath(cacheDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	store := StoreDir(cacheDir, true)
	return config.Mistake(salt.WithHint(fmt.Errorf("this master has left its cluster at %s", strings.TrimSpace(string(when))),
		fmt.Sprintf("to make it a member again, move %s away, since the other members have what is in it; to use it alone, take cluster_id out of the configuration, too", store)))
}

// CheckJoin checks what a single master needs to take its store into a cluster: no other store, and
// room on the disk for the copy that it is read from.
func CheckJoin(cacheDir string) error {
	store, other := StoreDir(cacheDir, true), StoreDir(cacheDir, false)
	full, err := hasData(store)
	if err != nil {
		return err
	}
	if full {
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
