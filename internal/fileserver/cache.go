package fileserver

import (
	"cmp"
	"context"
	"crypto/rand"
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

	"github.com/brinebus/brine/internal/posix"
)

// Source is a file server.
type Source interface {
	Environments(ctx context.Context) ([]string, error)
	// List returns the files of an environment, sorted by path, without sums.
	List(ctx context.Context, env string) ([]File, error)
	// Stat returns a file with its checksum; the error for an unknown one wraps ErrNotFound.
	Stat(ctx context.Context, env, path string) (File, error)
	// Get writes the content to w, unless its checksum is have.
	Get(ctx context.Context, env, path, have string, w io.Writer) (File, error)
}

// Cache stores copies of files below one directory. The content is stored under its checksum, which
// is verified when it is written and again when it is used; a tree of hard links gives it its usual
// name, files/ENVIRONMENT/PATH. Several processes may use it at the same time.
type Cache struct {
	Source
	dir string
}

// NewCache returns the cache in dir, which is created when it is first needed.
func NewCache(dir string, s Source) *Cache { return &Cache{s, dir} }

// The two parts of the directory.
const (
	content = "content" // by checksum
	names   = "files"   // by environment and path, links to content
)

// Dir returns the directory with the copies of an environment by their paths.
func (c *Cache) Dir(env string) string { return filepath.Join(c.dir, names, env) }

// Fetch updates the copy of a file and returns its path. Data from the source is accepted only if
// it has the promised checksum.
func (c *Cache) Fetch(ctx context.Context, env, name string) (string, File, error) {
	if err := errors.Join(CheckEnvironment(env), CheckPath(name)); err != nil {
		return "", File{}, err
	}
	root, err := c.open()
	if err != nil {
		return "", File{}, err
	}
	defer root.Close()
	link := path.Join(names, env, name)
	have := sumOf(root, link)
	tmp, sum, file, err := c.download(ctx, root, env, name, have)
	if err != nil {
		return "", File{}, err
	}
	place := filepath.Join(c.dir, link)
	if have != "" && file.SHA256 == have {
		return place, file, root.Remove(tmp)
	}
	if sum != file.SHA256 {
		return "", File{}, errors.Join(fmt.Errorf("%s in environment %s: the content that came has the sum %s, not %s", name, env, sum, file.SHA256), root.Remove(tmp))
	}
	return place, file, c.keep(root, tmp, sum, link)
}

func (c *Cache) open() (*os.Root, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(root.MkdirAll(content, 0o700), root.MkdirAll(names, 0o700)); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// download writes the content from the source to a temporary file and returns its checksum.
func (c *Cache) download(ctx context.Context, root *os.Root, env, name, have string) (tmp, sum string, file File, err error) {
	tmp = path.Join(content, ".tmp-"+rand.Text())
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", "", File{}, err
	}
	h := sha256.New()
	file, err = c.Get(ctx, env, name, have, io.MultiWriter(f, h))
	if err = cmp.Or(err, f.Close()); err != nil {
		return "", "", File{}, errors.Join(err, root.Remove(tmp))
	}
	return tmp, hex.EncodeToString(h.Sum(nil)), file, nil
}

// keep stores the content and creates link to it. An older file there is removed, and its content
// too if that was its last name.
func (c *Cache) keep(root *os.Root, tmp, sum, link string) error {
	if err := clearPath(root, path.Dir(link)); err != nil {
		return err
	}
	old := sumOf(root, link)
	next := path.Join(content, ".tmp-"+rand.Text())
	if err := root.Link(tmp, next); err != nil { // link first: content with one name may be removed at any time
		return err
	}
	if err := root.Rename(tmp, path.Join(content, sum)); err != nil {
		return err
	}
	if info, err := root.Lstat(link); err == nil && info.IsDir() { // a file now has the path of an old directory
		if err := root.RemoveAll(link); err != nil {
			return err
		}
	}
	if err := root.Rename(next, link); err != nil {
		return errors.Join(err, root.Remove(next))
	}
	if old != "" && old != sum {
		return dropUnused(root, path.Join(content, old))
	}
	return nil
}

// clearPath creates a directory, and removes a file that has the name of one of its parents.
func clearPath(root *os.Root, dir string) error {
	for parent := dir; parent != "."; parent = path.Dir(parent) {
		if info, err := root.Lstat(parent); err == nil && !info.IsDir() {
			if err := root.Remove(parent); err != nil {
				return err
			}
		}
	}
	return root.MkdirAll(dir, 0o700)
}

func dropUnused(root *os.Root, blob string) error {
	info, err := root.Lstat(blob)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if s, err := posix.StatOf(info); err == nil && s.Links == 1 {
		return root.Remove(blob)
	}
	return nil
}

// sumOf returns the checksum of the existing file, "" for none.
func sumOf(root *os.Root, name string) string {
	f, err := root.OpenFile(name, os.O_RDONLY|posix.NoWaiting, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// FetchAll updates the copies of all files whose path is below prefix, "" for all of them, and
// returns them, sorted.
func (c *Cache) FetchAll(ctx context.Context, env, prefix string) ([]Copy, error) {
	files, err := c.List(ctx, env)
	if err != nil {
		return nil, err
	}
	var all []Copy
	for _, f := range files {
		if !Below(f.Path, prefix) {
			continue
		}
		place, file, err := c.Fetch(ctx, env, f.Path)
		if errors.Is(err, ErrNotFound) {
			continue // it was removed after the list was made
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Copy{file, place})
	}
	return all, nil
}

// Copy is a file with the path of its copy.
type Copy struct {
	File
	Place string
}

// Below reports whether a path is below a directory of the same tree, "" for the tree.
func Below(name, dir string) bool {
	dir = strings.Trim(dir, "/")
	return dir == "" || strings.HasPrefix(name, dir+"/")
}

// Cached returns the path of a copy, whether or not it is up to date.
func (c *Cache) Cached(env, name string) (string, bool) {
	if errors.Join(CheckEnvironment(env), CheckPath(name)) != nil {
		return "", false
	}
	place := filepath.Join(c.Dir(env), name)
	info, err := os.Lstat(place)
	return place, err == nil && info.Mode().IsRegular()
}

// Copies returns the files of an environment that have copies.
func (c *Cache) Copies(ctx context.Context, env string) ([]File, error) {
	if err := CheckEnvironment(env); err != nil {
		return nil, err
	}
	return NewRoots(map[string][]string{env: {c.Dir(env)}}).List(ctx, env)
}
