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
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Limits of what a minion stores here, besides the size of a file: a minion that may send files
// must not fill the disk of its master.
const (
	maxUploads = 1000
	maxDirs    = 1000      // one file can create hundreds
	maxTimes   = 10        // size of all files together, as a multiple of the maximum size of a file
	maxParts   = 4         // unfinished uploads
	partAge    = time.Hour // age at which an unfinished upload is removed
)

// Errors that say who caused them.
var (
	ErrFull     = errors.New("the master takes no more of this minion's files")
	ErrTooLarge = errors.New("the file is larger than the master takes")
	ErrOrder    = errors.New("the pieces of the file do not follow each other")
	ErrSum      = errors.New("the received data differs from what was sent")
)

// ErrBusy means that an upload of the same minion is under way, for which a caller does not wait who
// handles files of many minions.
var ErrBusy = errors.New("the minion is uploading a file")

// Uploads has the directories of all minions, in which each stores its files. It serves none of
// them: they are for the operator. It is safe for concurrent use.
type Uploads struct {
	// Shared is where other masters find the files; nil for a single master. It is set before the
	// first use.
	Shared Shared

	dir   string
	limit int64 // maximum size of one file, in bytes
	mu    sync.Mutex
	busy  map[salt.MinionID]*turn  // of minions whose files somebody works on, or waits to
	made  map[salt.MinionID]uint64 // see Made; of minions with a directory
}

// Shared keeps files where all masters of a system find them.
type Shared interface {
	// Room returns an error if nothing can be stored now, or no more of this minion.
	Room(ctx context.Context, id salt.MinionID) error
	// Store returns when the file is stored, so that the end of this master does not lose it. It may read
	// the content again from its beginning.
	Store(ctx context.Context, id salt.MinionID, c Upload, content io.ReadSeeker) error
}

// NewUploads returns the uploads below dir, which is created with the first file: that of web1 is
// DIR/web1/files. A file can have at most limit bytes.
func NewUploads(dir string, limit int64) *Uploads {
	return &Uploads{dir: dir, limit: limit, busy: map[salt.MinionID]*turn{}, made: map[salt.MinionID]uint64{}}
}

// Piece is a part of a file.
type Piece struct {
	Path   string `json:"path"`   // relative, with slashes: the path of the file
	Upload string `json:"upload"` // the sender's name for the upload, the same in all pieces of one file
	Offset int64  `json:"offset,omitempty"`
	Data   []byte `json:"data"`
	SHA256 string `json:"sha256,omitempty"` // of the whole file, in its last piece; "" if more follow
}

// Put stores a piece. With the last one, the complete file is moved to its path, once Shared has it.
func (u *Uploads) Put(ctx context.Context, id salt.MinionID, p Piece) error {
	if err := errors.Join(CheckPath(p.Path), checkUpload(p.Upload)); err != nil {
		return err
	}
	defer u.lock(id)()
	root, err := u.open(id)
	if err != nil {
		return err
	}
	defer root.Close()
	part := path.Join("parts", p.Upload)
	if p.Offset == 0 {
		err = u.begin(ctx, root, id, p)
	}
	if err == nil {
		err = u.add(root, part, p)
	}
	if err == nil && p.SHA256 != "" {
		err = u.finish(ctx, root, id, part, p)
	}
	if err != nil {
		_ = root.Remove(part) // it may be missing
	}
	return err
}

// checkUpload checks that name is a single path element.
func checkUpload(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
		return fmt.Errorf("%w: the name of an upload is %q", ErrOrder, name)
	}
	return nil
}

// turn is a lock that is dropped when nobody has it or waits for it.
type turn struct {
	sync.Mutex
	users int
}

// lock serialises what is done with the files of one minion.
func (u *Uploads) lock(id salt.MinionID) (unlock func()) {
	m := u.lockOf(id)
	m.Lock()
	return func() {
		m.Unlock()
		u.drop(id, m)
	}
}

// tryLock is lock for a caller that does not wait; nil means ErrBusy.
func (u *Uploads) tryLock(id salt.MinionID) (unlock func()) {
	m := u.lockOf(id)
	if !m.TryLock() {
		u.drop(id, m)
		return nil
	}
	return func() {
		m.Unlock()
		u.drop(id, m)
	}
}

// lockOf returns the lock of a minion; drop gives it back.
func (u *Uploads) lockOf(id salt.MinionID) *turn {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.busy[id]
	if m == nil {
		m = new(turn)
		u.busy[id] = m
	}
	m.users++
	return m
}

func (u *Uploads) drop(id salt.MinionID, m *turn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m.users--; m.users == 0 {
		delete(u.busy, id)
	}
}

// open opens the directory of a minion.
func (u *Uploads) open(id salt.MinionID) (*os.Root, error) {
	dir := filepath.Join(u.dir, string(id))
	if _, err := os.Lstat(filepath.Join(dir, "files")); errors.Is(err, fs.ErrNotExist) {
		u.mu.Lock()
		u.made[id]++
		u.mu.Unlock()
	}
	for _, name := range []string{"files", "parts"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	return os.OpenRoot(dir)
}

// Made counts how often the directory with the files of a minion was made anew since the start. It has
// counted before the directory is there.
func (u *Uploads) Made(id salt.MinionID) uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.made[id]
}

// begin checks that there is room, and removes unfinished uploads.
func (u *Uploads) begin(ctx context.Context, root *os.Root, id salt.MinionID, p Piece) error {
	if u.Shared != nil {
		if err := u.Shared.Room(ctx, id); err != nil {
			return err
		}
	}
	parts, err := fs.ReadDir(root.FS(), "parts")
	if err != nil {
		return err
	}
	left := 0
	for _, one := range parts {
		info, err := one.Info()
		if err == nil && time.Since(info.ModTime()) < partAge && one.Name() != p.Upload {
			left++
			continue
		}
		if err := root.Remove(path.Join("parts", one.Name())); err != nil {
			return err
		}
	}
	if left >= maxParts {
		return fmt.Errorf("%w: %s of it are under way", ErrFull, salt.Count(left, "file"))
	}
	return u.checkQuota(root)
}

// Usage is what a minion has stored.
type Usage struct {
	Files, Dirs int
	Bytes       int64
}

// checkQuota checks that the minion may store one more file.
func (u *Uploads) checkQuota(root *os.Root) error {
	var used Usage
	err := fs.WalkDir(root.FS(), "files", func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			used.Dirs++ // a failed upload may leave the directories of its path, where a disk is full for example
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		used.Files, used.Bytes = used.Files+1, used.Bytes+info.Size()
		return nil
	})
	if err != nil {
		return err
	}
	return u.Allows(used)
}

// Allows returns an error if a minion that has stored this much may store no more.
func (u *Uploads) Allows(used Usage) error {
	switch {
	case used.Files >= maxUploads:
		return fmt.Errorf("%w: it has %d", ErrFull, used.Files)
	case used.Dirs >= maxDirs:
		return fmt.Errorf("%w: they are in %d directories", ErrFull, used.Dirs)
	case used.Bytes > maxTimes*u.limit:
		return fmt.Errorf("%w: they have %d bytes", ErrFull, used.Bytes)
	}
	return nil
}

// add appends a piece to the previous ones.
func (u *Uploads) add(root *os.Root, part string, p Piece) error {
	flags := os.O_WRONLY | os.O_APPEND
	if p.Offset == 0 {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := root.OpenFile(part, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return ErrOrder
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() != p.Offset:
		return ErrOrder
	case p.Offset+int64(len(p.Data)) > u.limit:
		return fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, u.limit)
	}
	_, err = f.Write(p.Data)
	return err
}

// finish moves the file to its path if its checksum is right.
func (u *Uploads) finish(ctx context.Context, root *os.Root, id salt.MinionID, part string, p Piece) error {
	f, err := root.Open(part)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != p.SHA256 {
		return ErrSum
	}
	place := path.Join("files", p.Path)
	if err := root.MkdirAll(path.Dir(place), 0o700); err != nil {
		return err
	}
	if u.Shared != nil {
		if err := u.share(ctx, root, id, f, Upload{Path: p.Path, Size: size, SHA256: p.SHA256}); err != nil {
			return err
		}
	}
	return root.Rename(part, place)
}
