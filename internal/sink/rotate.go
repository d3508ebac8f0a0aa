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

// rotatedLayout is put behind the name of a file that is full, with a dot. The
// names of older files come first in the alphabet.
const rotatedLayout = "20060102T150405.000Z"

const gzipSuffix = ".gz"

// due says whether the next event belongs into a new file.
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
	// Old files that cannot be tidied up are no reason to keep new events waiting.
	if err := d.tidy(); err != nil {
		d.log.Error("old files not tidied up", "err", err)
	}
	return nil
}

// move renames a file to a name that nobody has, plain or compressed.
func move(from, to string) error {
	for _, name := range []string{to, to + gzipSuffix} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fs.ErrExist, err)
		}
	}
	return os.Rename(from, to)
}

// tidy compresses files that were rotated, also those that an earlier run did not
// come to, and removes what is too much.
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

// rotated lists the files that path has had before, the oldest first.
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

// compress replaces a file by its compressed form. There is always one of the
// two that is whole.
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
