// Package atomicfile writes files of state whole or not at all: to a temporary
// file beside the place, synced, then renamed over it. It does not append and
// does not lock.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/brinebus/brine/internal/posix"
)

// MakeDir makes dir, and what is missing above it, with exactly the given mode,
// whatever the umask says. What is there stays as it is.
func MakeDir(dir string, mode fs.FileMode) error {
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := MakeDir(filepath.Dir(dir), mode); err != nil {
			return err
		}
		err = os.Mkdir(dir, mode)
	}
	if errors.Is(err, fs.ErrExist) {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// Write replaces the file at path by data with exactly the given mode, whatever
// the umask says and whatever mode the file had. A reader sees the old content
// or the new; after an error the old file stands and no temporary one is left.
func Write(path string, data []byte, mode fs.FileMode) error {
	if err := place(path, data, mode, (*os.File).Sync); err != nil {
		return err
	}
	return posix.SyncPath(filepath.Dir(path))
}

// WriteOwned is Write for a file of somebody else: it is theirs before it has its name, so
// that nobody who may write to the directory can have another file given away.
func WriteOwned(path string, data []byte, mode fs.FileMode, uid, gid int) error {
	err := place(path, data, mode, func(f *os.File) error {
		return errors.Join(f.Chown(uid, gid), f.Chmod(mode), f.Sync()) // chown takes bits of the mode away
	})
	if err != nil {
		return err
	}
	return posix.SyncPath(filepath.Dir(path))
}

// Place is Write for what is brought again if it is lost: a loss of power may leave an
// empty file.
func Place(path string, data []byte, mode fs.FileMode) error {
	return place(path, data, mode, func(*os.File) error { return nil })
}

func place(path string, data []byte, mode fs.FileMode, sync func(*os.File) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".tmp-*") // created 0600 with O_EXCL under a random name
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = errors.Join(f.Chmod(mode), posix.Restrict(f.Name(), mode)); err != nil {
		return err
	}
	if err = sync(f); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
