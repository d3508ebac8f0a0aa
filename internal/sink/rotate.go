package sink

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// rotatedLayout is appended to the name of a full file, after a dot. The names of older files sort
// first.
const rotatedLayout = "20060102T150405.000Z"

const gzipSuffix = ".gz"

// due reports whether the next event belongs in a new file.
func (d *file) due(now time.Time) bool {
	if d.size == 0 {
		return false
	}
	if d.full || d.limit > 0 && d.size >= d.limit {
		return true
	}
	info, err := d.f.Stat()
	return err == nil && d.every > 0 && info.ModTime().UTC().Truncate(d.every).Before(now.UTC().Truncate(d.every))
}

// begin moves the file away and opens a new one.
func (d *file) begin() error {
	for now := time.Now().UTC(); ; now = now.Add(time.Millisecond) {
		err := move(d.path, d.path+"."+now.Format(rotatedLayout))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("rotate %s: %w", d.path, err)
		}
	}
	d.f.Close()
	d.full = false
	if err := d.append(); err != nil {
		return err
	}
	// New events must not wait because old files cannot be tidied up.
	if err := d.tidy(); err != nil {
		d.log.Error("old files not removed", "err", err)
	}
	return nil
}

// move renames a file to a name that does not exist yet, plain or compressed.
func move(from, to string) error {
	for _, name := range []string{to, to + gzipSuffix} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fs.ErrExist, err)
		}
	}
	return os.Rename(from, to)
}

// tidy compresses rotated files, including those that an earlier run left uncompressed, and removes
// those beyond the number to keep.
func (d *file) tidy() error {
	old, err := rotated(d.path)
	if err != nil {
		return err
	}
	if d.keep > 0 && len(old) > d.keep {
		for _, path := range old[:len(old)-d.keep] {
			err = errors.Join(err, os.Remove(path))
		}
		old = old[len(old)-d.keep:]
	}
	for _, path := range old {
		if d.compress && !strings.HasSuffix(path, gzipSuffix) {
			err = errors.Join(err, compress(path, d.mode))
		}
	}
	return err
}

// rotated lists the rotated files of path, the oldest first.
func rotated(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		moment, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), gzipSuffix), filepath.Base(path)+".")
		if _, err := time.Parse(rotatedLayout, moment); ok && err == nil {
			list = append(list, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	slices.Sort(list)
	return list, nil
}

// compress replaces a file with its compressed form. At any time one of the two is complete.
func compress(path string, mode fs.FileMode) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		out.Close()
		if err != nil {
			os.Remove(out.Name())
			err = fmt.Errorf("compress %s: %w", path, err)
		}
	}()
	z := gzip.NewWriter(out)
	if _, err = io.Copy(z, in); err == nil {
		err = z.Close()
	}
	if err == nil {
		err = errors.Join(out.Chmod(mode), out.Sync())
	}
	if err == nil {
		err = os.Rename(out.Name(), path+gzipSuffix)
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}
