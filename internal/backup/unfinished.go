package backup

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/posix"
)

// A backup is written into a directory beside the one that it becomes. A file with the same name and
// lockSuffix is locked while the process lives that writes it: who gets the lock of another one may
// remove both. It is not in the directory, since that gets its name while the lock is held, and not
// every system renames a directory with an open file.
const (
	unfinishedMark = ".unfinished-"
	lockSuffix     = ".lock"
)

// unfinished is a directory in which a backup is written.
type unfinished struct {
	dir  string
	lock *os.File
}

// newUnfinished makes the directory in which the backup dir is written.
func newUnfinished(dir string) (*unfinished, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(dir), "."+filepath.Base(dir)+unfinishedMark+"*"+lockSuffix)
		if err != nil {
			return nil, err
		}
		u := &unfinished{dir: strings.TrimSuffix(f.Name(), lockSuffix), lock: f}
		err = posix.TryLock(f, posix.Exclusive)
		if err == nil && !isAt(f, f.Name()) || errors.Is(err, posix.ErrLocked) {
			u.remove() // another backup has taken it for one that was left, before it was locked
			continue
		}
		// Where files cannot be locked, nobody else gets the lock, either.
		if err := os.Mkdir(u.dir, 0o700); err != nil {
			u.remove()
			return nil, err
		}
		return u, nil
	}
}

// isAt reports whether a path still leads to an open file.
func isAt(f *os.File, path string) bool {
	own, err := f.Stat()
	there, errThere := os.Lstat(path)
	return err == nil && errThere == nil && os.SameFile(own, there)
}

// remove removes what is there of it, which is only the lock if the directory has got its name.
func (u *unfinished) remove() {
	path := u.lock.Name()
	if os.RemoveAll(u.dir) != nil || !isAt(u.lock, path) {
		u.lock.Close() // what stays is for the next backup, which needs the lock for it
		return
	}
	err := os.Remove(path)
	u.lock.Close()
	if err != nil {
		os.Remove(path) // not every system removes an open file
	}
}

// removeUnfinished removes what backups that were killed have left in a directory.
func removeUnfinished(dir string, log *slog.Logger) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the remains of backups that were killed cannot be looked for", "dir", dir, "err", err)
	}
	for _, e := range list {
		name := e.Name()
		if !strings.HasPrefix(name, ".") || !strings.Contains(name, unfinishedMark) || !strings.HasSuffix(name, lockSuffix) {
			continue
		}
		if u := abandoned(filepath.Join(dir, name)); u != nil {
			log.Info("the remains of a backup that was killed are removed", "dir", u.dir)
			u.remove()
		}
	}
}

// abandoned returns the unfinished backup with this lock, nil if its process lives or it belongs to
// another user.
func abandoned(path string) *unfinished {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if uid, _, err := posix.Owner(path, info); err != nil || uid != os.Geteuid() {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|posix.NoFollow|posix.NoWaiting, 0)
	if err != nil {
		return nil
	}
	if posix.TryLock(f, posix.Exclusive) != nil || !isAt(f, path) {
		f.Close()
		return nil
	}
	return &unfinished{dir: strings.TrimSuffix(path, lockSuffix), lock: f}
}
