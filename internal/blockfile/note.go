package blockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/brinebus/brine/internal/posix"
)

// unsynced is the folder, beside the store's own, for notes of streams whose sync has failed:
// from which block on the disk may not have what the kernel has. A daemon that ends before it
// has written these anew leaves them to the next start, for which the kernel takes all of it
// for written. The notes themselves are not synced: after a power cut the kernel has nothing
// that the disk does not have.
const unsynced = "unsynced"

func notePath(dir, stream string) string { return filepath.Join(dir, unsynced, stream) }

// wayOnly is noted where not even the folders were synced, and no block was tried.
const wayOnly = -1

func (o *synced) note(dir, stream string) error {
	from := o.block
	if !o.way {
		from = wayOnly
	}
	err := os.MkdirAll(filepath.Join(dir, unsynced), 0o700)
	if err == nil {
		err = replaceFile(notePath(dir, stream), []byte(strconv.Itoa(from)))
	}
	if err != nil {
		return fmt.Errorf("note what is not synced: %w", err)
	}
	return nil
}

func dropNote(dir, stream string) error {
	if err := os.Remove(notePath(dir, stream)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// noted returns the streams of which there are notes.
func noted(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, unsynced))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var streams []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".tmp" { // which a kill has cut off, as it failed
			streams = append(streams, e.Name())
		}
	}
	return streams, nil
}

// renewNoted writes anew what the notes of a store name that is not open. A note that cannot
// be read names all blocks.
func renewNoted(dir string, streams []string) error {
	for _, stream := range streams {
		found, err := folderOf(dir, stream)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(notePath(dir, stream))
		if err != nil {
			return err
		}
		from, _ := strconv.Atoi(string(text))
		o := synced{dir: found, way: from != wayOnly, block: max(from, 0)}
		if err := o.renew(dir, posix.SyncData); err != nil {
			return err
		}
	}
	return nil
}
