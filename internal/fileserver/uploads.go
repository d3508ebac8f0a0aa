package fileserver

import (
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

// Bounds of what a minion keeps here, beside the size of a file: who is allowed to
// hand in files shall not fill the disk of its master.
const (
	maxUploads = 1000
	maxDirs    = 1000      // of one file there may be hundreds more
	maxTimes   = 10        // all files together, in times the largest one
	maxParts   = 4         // uploads that have begun
	partAge    = time.Hour // of one that will not be finished any more
)

// The errors that say whose fault it is.
var (
	ErrFull     = errors.New("the master takes no more of this minion's files")
	ErrTooLarge = errors.New("the file is larger than the master takes")
	ErrOrder    = errors.New("the pieces of the file do not follow each other")
	ErrSum      = errors.New("what came is not what was sent")
)

// Uploads are the directories of all minions, into which each hands its files. They
// give none out: what is there is for the operator to look at. They are safe for
// concurrent use.
type Uploads struct {
	dir   string
	limit int64 // bytes of one file
	mu    sync.Mutex
	busy  map[salt.MinionID]*sync.Mutex
}

// NewUploads returns the uploads below dir, which is made when the first file comes: that
// of web1 is DIR/web1/files. No file has more than limit bytes.
func NewUploads(dir string, limit int64) *Uploads {
	return &Uploads{dir: dir, limit: limit, busy: map[salt.MinionID]*sync.Mutex{}}
}

// Piece is a part of a file.
type Piece struct {
	Path   string `json:"path"`   // relative, with slashes: where the file is to be
	Upload string `json:"upload"` // a name for the pieces of one file, from whoever sends them
	Offset int64  `json:"offset,omitempty"`
	Data   []byte `json:"data"`
	SHA256 string `json:"sha256,omitempty"` // of the whole file, with its last piece; "" if more come
}

// Put takes a piece. The file takes its place, whole, with the last one.
func (u *Uploads) Put(id salt.MinionID, p Piece) error {
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
		err = u.begin(root, p)
	}
	if err == nil {
		err = u.add(root, part, p)
	}
	if err == nil && p.SHA256 != "" {
		err = u.finish(root, part, p)
	}
	if err != nil {
		_ = root.Remove(part) // it may not be there
	}
	return err
}

// checkUpload wants a name that is nothing but that.
func checkUpload(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
		return fmt.Errorf("%w: the name of an upload is %q", ErrOrder, name)
	}
	return nil
}

// lock keeps the pieces of one minion apart.
func (u *Uploads) lock(id salt.MinionID) (unlock func()) {
	u.mu.Lock()
	m := u.busy[id]
	if m == nil {
		m = new(sync.Mutex)
		u.busy[id] = m
	}
	u.mu.Unlock()
	m.Lock()
	return m.Unlock
}

// open opens the directory of a minion.
func (u *Uploads) open(id salt.MinionID) (*os.Root, error) {
	dir := filepath.Join(u.dir, string(id))
	for _, name := range []string{"files", "parts"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	return os.OpenRoot(dir)
}

// begin looks whether there is room, and removes what was left unfinished.
func (u *Uploads) begin(root *os.Root, p Piece) error {
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

// checkQuota says whether the minion may hand in one more file.
func (u *Uploads) checkQuota(root *os.Root) error {
	files, dirs, bytes := 0, 0, int64(0)
	err := fs.WalkDir(root.FS(), "files", func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			dirs++ // a file that cannot take its place leaves those on the way to it
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		files, bytes = files+1, bytes+info.Size()
		return nil
	})
	switch {
	case err != nil:
		return err
	case files >= maxUploads:
		return fmt.Errorf("%w: it has %d", ErrFull, files)
	case dirs >= maxDirs:
		return fmt.Errorf("%w: they are in %d directories", ErrFull, dirs)
	case bytes > maxTimes*u.limit:
		return fmt.Errorf("%w: they have %d bytes", ErrFull, bytes)
	}
	return nil
}

// add appends a piece to what came before.
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

// finish puts the file into its place if it is what was sent.
func (u *Uploads) finish(root *os.Root, part string, p Piece) error {
	f, err := root.Open(part)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != p.SHA256 {
		return ErrSum
	}
	place := path.Join("files", p.Path)
	if err := root.MkdirAll(path.Dir(place), 0o700); err != nil {
		return err
	}
	return root.Rename(part, place)
}
