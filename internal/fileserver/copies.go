package fileserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Upload is a file of a minion that another master may have as well.
type Upload struct {
	Path   string
	Size   int64
	SHA256 string
	Time   time.Time // when the minion has uploaded it
}

// copiesDir is the directory, in that of a minion, of a file that is just being fetched.
const copiesDir = "copies"

// share stores a file that has come whole, before it is moved to its path. What cannot be moved there
// is not stored either.
func (u *Uploads) share(ctx context.Context, root *os.Root, id salt.MinionID, f *os.File, c Upload) error {
	there, err := root.Lstat(path.Join("files", c.Path))
	switch {
	case err == nil && there.IsDir():
		return fmt.Errorf("%w: %q is a directory", ErrPath, c.Path)
	case err != nil && !errors.Is(err, fs.ErrNotExist): // a name that this file system does not take, for example
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	c.Time = info.ModTime()
	return u.Shared.Store(ctx, id, c, f)
}

// Place puts a file that another master has taken at its path, unless it is there; fetch writes its
// content. It appears whole, with the right checksum, or not at all, and is on the disk when Place
// returns. The rules for paths are those for minions: the name comes from elsewhere as well. While the
// minion uploads something here, the error is ErrBusy; until Place returns, its uploads wait.
func (u *Uploads) Place(id salt.MinionID, c Upload, fetch func(io.Writer) error) error {
	if err := CheckPath(c.Path); err != nil {
		return err
	}
	if sum, err := hex.DecodeString(c.SHA256); err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("%w: %.100q is no SHA-256", ErrSum, c.SHA256)
	}
	unlock := u.tryLock(id)
	if unlock == nil {
		return ErrBusy
	}
	defer unlock()
	root, err := u.open(id)
	if err != nil {
		return err
	}
	defer root.Close()
	there, err := has(root, c)
	if err == nil && !there {
		err = install(root, c, fetch)
	}
	if err != nil {
		return err
	}
	return u.syncDirs(id, c.Path)
}

// has reports whether the file is at its path.
func has(root *os.Root, c Upload) (bool, error) {
	info, err := root.Lstat(path.Join("files", c.Path))
	if err != nil || !info.Mode().IsRegular() || info.Size() != c.Size {
		return false, nil //nolint:nilerr // whatever is wrong, Rename tells
	}
	f, err := root.Open(path.Join("files", c.Path))
	if err != nil {
		return false, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return false, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != c.SHA256 {
		return false, nil
	}
	return true, f.Sync()
}

// install writes the file beside its path, checks it, and moves it there.
func install(root *os.Root, c Upload, fetch func(io.Writer) error) error {
	if err := errors.Join(makeWay(root, c), root.RemoveAll(copiesDir), root.MkdirAll(copiesDir, 0o700)); err != nil {
		return err
	}
	defer root.RemoveAll(copiesDir) //nolint:errcheck // the next one does it
	part := path.Join(copiesDir, c.SHA256)
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	size := &bounded{w: io.MultiWriter(f, sum), left: c.Size}
	err = fetch(size)
	if err == nil && (size.left != 0 || hex.EncodeToString(sum.Sum(nil)) != c.SHA256) {
		err = ErrSum
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	place := path.Join("files", c.Path)
	err = root.Chtimes(part, c.Time, c.Time)
	if err == nil {
		err = root.MkdirAll(path.Dir(place), 0o700)
	}
	if err == nil {
		err = root.Rename(part, place)
	}
	return err
}

// makeWay makes way for a file, or says why it cannot be where it is to be: before it is fetched.
func makeWay(root *os.Root, c Upload) error {
	place := path.Join("files", c.Path)
	info, err := root.Lstat(place)
	switch {
	case err == nil && info.IsDir() && root.Remove(place) != nil: // an upload that failed may have left an empty one
		return fmt.Errorf("%w: %q is a directory", ErrPath, c.Path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return root.MkdirAll(path.Dir(place), 0o700)
}

// bounded takes at most left bytes.
type bounded struct {
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, ErrSum
	}
	b.left -= int64(len(p))
	return b.w.Write(p)
}

// syncDirs syncs all directories on the way to a file: a power cut must not look as if somebody had
// removed it.
func (u *Uploads) syncDirs(id salt.MinionID, name string) error {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if err := posix.SyncPath(filepath.Join(u.dir, string(id), "files", filepath.FromSlash(dir))); err != nil || dir == "." {
			return err
		}
	}
}

// Withdraw removes a file, if it is there, and the directories that become empty. While the minion
// uploads something here, the error is ErrBusy.
func (u *Uploads) Withdraw(id salt.MinionID, name string) error {
	if err := CheckPath(name); err != nil {
		return err
	}
	unlock := u.tryLock(id)
	if unlock == nil {
		return ErrBusy
	}
	defer unlock()
	root, err := os.OpenRoot(filepath.Join(u.dir, string(id), "files"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if cannotBe(root, name) {
			return nil
		}
		return err
	}
	for dir := path.Dir(name); dir != "." && root.Remove(dir) == nil; dir = path.Dir(dir) {
	}
	return nil
}

// cannotBe reports whether no file can be at this path as the directory is now, so that the one that was
// stored there was never placed: a directory is there, or a file where a directory would have to be.
func cannotBe(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.IsDir() || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}

// Missing reports whether a file is not there, and whether the directory with all files of the minion
// is there: without that nobody has removed the file, but the disk may be another one.
func (u *Uploads) Missing(id salt.MinionID, name string) (missing, dir bool) {
	root, err := os.OpenRoot(filepath.Join(u.dir, string(id), "files"))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), false
	}
	defer root.Close()
	_, err = root.Lstat(name)
	return errors.Is(err, fs.ErrNotExist), true
}

// Each calls f for each file of each minion that is here, until it returns an error.
func (u *Uploads) Each(f func(id salt.MinionID, name string) error) error {
	dirs, err := os.ReadDir(u.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range dirs {
		id, err := salt.ParseMinionID(dir.Name())
		if err != nil || !dir.IsDir() {
			continue
		}
		if err := u.each(id, func(name string) error { return f(id, name) }); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for each file of a minion whose name it may have uploaded.
func (u *Uploads) each(id salt.MinionID, f func(name string) error) error {
	root, err := os.OpenRoot(filepath.Join(u.dir, string(id), "files"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || CheckPath(name) != nil {
			return err
		}
		return f(name)
	})
}

// Read calls f with a file that is here; without one the error wraps fs.ErrNotExist.
func (u *Uploads) Read(id salt.MinionID, name string, f func(c Upload, content io.ReadSeeker) error) error {
	if err := CheckPath(name); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(u.dir, string(id), "files"))
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return f(Upload{Path: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil)), Time: info.ModTime()}, file)
}
