package extension

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/posix"
)

// maxProgram limits the size of one synchronised file.
const maxProgram = 256 << 20

// Sync makes dir contain exactly what the environments of a file server have in the directory of a
// kind; if two files have the same path, that of the first environment counts. Each file is
// replaced atomically, and unchanged files are not touched. It returns what is new or has changed,
// as "modules.NAME", sorted.
func Sync(ctx context.Context, cache *fileserver.Cache, kind Kind, envs []string, dir string) ([]string, error) {
	wanted, err := fetch(ctx, cache, kind, envs)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	changed := []string{}
	for _, c := range wanted {
		did, err := install(c, filepath.Join(dir, c.Path))
		if err != nil {
			return changed, err
		}
		if name, _, _ := strings.Cut(c.Path, "."); did {
			changed = append(changed, string(kind)+"."+strings.ReplaceAll(name, "/", "."))
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed), removeOthers(dir, wanted)
}

// fetch updates the copies and gives them their paths below the directory.
func fetch(ctx context.Context, cache *fileserver.Cache, kind Kind, envs []string) ([]fileserver.Copy, error) {
	var wanted []fileserver.Copy
	for _, env := range envs {
		copies, err := cache.FetchAll(ctx, env, kind.Folder())
		if err != nil {
			return nil, err
		}
		for _, c := range copies {
			c.Path = strings.TrimPrefix(c.Path, kind.Folder()+"/")
			if !slices.ContainsFunc(wanted, func(o fileserver.Copy) bool { return o.Path == c.Path }) {
				wanted = append(wanted, c)
			}
		}
	}
	return wanted, nil
}

// lock excludes a second synchronisation until the first is done.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := posix.Lock(f, posix.Exclusive); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// install copies a file to place, unless the same is there. Only the owner may read it, and execute
// it if the server's file is executable.
func install(c fileserver.Copy, place string) (changed bool, err error) {
	if c.Size > maxProgram {
		return false, fmt.Errorf("%s has %d bytes, the limit for a program is %d", c.Path, c.Size, maxProgram)
	}
	text, err := os.ReadFile(c.Place)
	if err != nil {
		return false, err
	}
	mode := fs.FileMode(0o600)
	if c.Mode&0o111 != 0 {
		mode = 0o700
	}
	info, err := os.Lstat(place)
	if err == nil && info.Mode() == mode && sameContent(place, text) {
		return false, nil
	}
	if err == nil && info.IsDir() {
		err = os.RemoveAll(place)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return false, err
	}
	if err := makeParents(place); err != nil {
		return false, err
	}
	return true, atomicfile.Write(place, text, mode)
}

func sameContent(place string, text []byte) bool {
	old, err := os.ReadFile(place)
	return err == nil && sha256.Sum256(old) == sha256.Sum256(text)
}

// makeParents creates the directory for a file, and removes a file that has its name.
func makeParents(place string) error {
	err := os.MkdirAll(filepath.Dir(place), 0o700)
	if errors.Is(err, syscall.ENOTDIR) {
		if err := os.Remove(filepath.Dir(place)); err != nil {
			return err
		}
		err = os.MkdirAll(filepath.Dir(place), 0o700)
	}
	return err
}

// removeOthers removes files that the server does not have, and directories that are empty then.
func removeOthers(dir string, wanted []fileserver.Copy) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, path)
			return nil
		}
		is := func(c fileserver.Copy) bool { return filepath.Join(dir, c.Path) == path }
		if slices.ContainsFunc(wanted, is) {
			return nil
		}
		return os.Remove(path)
	})
	for _, d := range slices.Backward(dirs) {
		_ = os.Remove(d) // fails if it is not empty
	}
	return err
}
