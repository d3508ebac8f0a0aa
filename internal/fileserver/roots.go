// Package fileserver serves and stores files: [Roots] reads the directories of file_roots, [Cache]
// stores a minion's copies of files from a file server, and [Uploads] stores the files that minions
// send to their master. No path and no symbolic link leads out of their directories.
//
// It does not decide who may read or send a file, and it knows no connection: the interface between
// server and cache is [Source].
package fileserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/brinebus/brine/internal/posix"
)

// Limits of what is served. Both protect the client too: the list and the file end up in its memory
// and on its disk.
const (
	maxFiles = 100_000
	maxSize  = 4 << 30
	maxPath  = 1024 // bytes
	maxName  = 255  // bytes of each part of a path: the usual file systems have no longer names
)

// File has the metadata of a file.
type File struct {
	Path   string      `json:"path"`             // below its root, with slashes
	Size   int64       `json:"size"`             // in bytes
	Mode   fs.FileMode `json:"mode"`             // the permission bits
	SHA256 string      `json:"sha256,omitempty"` // hexadecimal; empty in a list
}

// Errors: the path is invalid, or there is no such file.
var (
	ErrPath     = errors.New("not a path below the file roots")
	ErrNotFound = errors.New("there is no such file")
)

// Roots has the directories by environment. It is safe for concurrent use.
type Roots struct {
	dirs  map[string][]string
	sums  sums
	lists lists
}

// NewRoots returns the view of the given directories; the first of an environment has precedence. A
// missing directory counts as empty.
func NewRoots(dirs map[string][]string) *Roots { return &Roots{dirs: dirs} }

// CheckPath checks that path can name a file: relative, with slashes, without empty, "." and ".."
// parts, backslashes and control characters, and without parts that no directory can have. It is never decoded: %2e is a percent sign and two
// characters.
func CheckPath(name string) error {
	if len(name) > maxPath || name == "." || !fs.ValidPath(name) || strings.Contains(name, `\`) || strings.ContainsFunc(name, unicode.IsControl) || tooLong(name) {
		return fmt.Errorf("%w: %q", ErrPath, name)
	}
	return nil
}

func tooLong(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return true
		}
	}
	return false
}

// CheckEnvironment checks that name can be that of an environment: one part of a path.
func CheckEnvironment(name string) error {
	if CheckPath(name) != nil || strings.Contains(name, "/") {
		return fmt.Errorf("%w: environment %q", ErrPath, name)
	}
	return nil
}

// Environments returns the names of the environments, sorted.
func (r *Roots) Environments(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(r.dirs)), nil
}

// List returns the files of an environment, sorted by path, without their checksums. The slice is
// shared and must not be changed. A symbolic link to a file within its root is a file; a link to a
// directory is not followed here, although the files in it can be opened. At most a tenth of the
// time is spent on lists: a client that requests them without end has to wait.
func (r *Roots) List(ctx context.Context, env string) ([]File, error) {
	if err := CheckEnvironment(env); err != nil {
		return nil, err
	}
	if _, known := r.dirs[env]; !known {
		return nil, fmt.Errorf("%w: environment %q", ErrNotFound, env)
	}
	return r.lists.get(ctx, env, func() ([]File, error) { return list(ctx, r.dirs[env]) })
}

// list walks over the directories.
func list(ctx context.Context, dirs []string) ([]File, error) {
	found := map[string]File{}
	for _, dir := range dirs {
		if err := listRoot(ctx, dir, found); err != nil {
			return nil, err
		}
	}
	files := make([]File, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		files = append(files, found[name])
	}
	return files, nil
}

// listRoot adds the files that found does not have yet.
func listRoot(ctx context.Context, dir string, found map[string]File) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || d.IsDir() || CheckPath(name) != nil {
			return nil // an unreadable file counts as missing
		}
		info, err := root.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if _, known := found[name]; !known {
			found[name] = File{Path: name, Size: info.Size(), Mode: info.Mode().Perm()}
		}
		if len(found) > maxFiles {
			return fmt.Errorf("%s: more than %d files", dir, maxFiles)
		}
		return nil
	})
}

// Stat returns a file with its checksum.
func (r *Roots) Stat(ctx context.Context, env, name string) (File, error) {
	f, file, err := r.open(ctx, env, name)
	if err != nil {
		return File{}, err
	}
	return file, f.Close()
}

// Get writes the content of a file to w, unless its checksum is have. If the file is being written,
// the content may not match the checksum; the receiver must compare.
func (r *Roots) Get(ctx context.Context, env, name, have string, w io.Writer) (File, error) {
	f, file, err := r.open(ctx, env, name)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	if file.SHA256 == have {
		return file, nil
	}
	_, err = io.Copy(w, io.LimitReader(f, maxSize))
	return file, err
}

// open opens a file and reads its checksum.
func (r *Roots) open(ctx context.Context, env, name string) (*os.File, File, error) {
	if err := errors.Join(CheckEnvironment(env), CheckPath(name)); err != nil {
		return nil, File{}, err
	}
	for _, dir := range r.dirs[env] {
		f, info, err := openIn(dir, name)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, File{}, err
		}
		sum, info, err := r.sums.of(ctx, f, info, f.Stat)
		if err != nil {
			f.Close()
			return nil, File{}, err
		}
		return f, File{Path: name, Size: info.Size(), Mode: info.Mode().Perm(), SHA256: sum}, nil
	}
	return nil, File{}, fmt.Errorf("%w: %q in environment %q", ErrNotFound, name, env)
}

// openIn opens a regular file below dir. It does not block on a pipe; for the caller, a file
// outside of dir does not exist.
func openIn(dir, name string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, ErrNotFound
	}
	defer root.Close()
	f, err := root.OpenFile(path.Clean(name), os.O_RDONLY|posix.NoWaiting, 0)
	if err != nil {
		return nil, nil, ErrNotFound
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, nil, ErrNotFound
	}
	if info.Size() > maxSize {
		f.Close()
		return nil, nil, fmt.Errorf("%q has %d bytes, the limit is %d", name, info.Size(), int64(maxSize))
	}
	return f, info, nil
}
