package blockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/brinebus/brine/internal/posix"
)

// unsynced is the directory, beside the store's own, for notes about streams whose sync has failed:
// from which block on the disk may lack what the kernel has. If a daemon ends before it has
// rewritten these blocks, the next start does it: the kernel considers them written, so only the
// notes show them. The notes themselves are not synced: after a power failure the kernel has nothing
// that the disk lacks.
const unsynced = "unsynced"

func notePath(dir, stream string) string { return filepath.Join(dir, unsynced, stream) }

// wayOnly is noted if not even the directories could be synced, and no block was tried.
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

// noted returns the streams that have notes.
func noted(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, unsynced))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var streams []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".tmp" { // a temporary file was left by a kill during the write
			streams = append(streams, e.Name())
		}
	}
	return streams, nil
}

// renewNoted rewrites the blocks that the notes of a closed store name. An unreadable note means
// all blocks.
func renewNoted(dir string, streams []string, data syncFile) error {
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
		if err := o.renew(dir, data); err != nil {
			return err
		}
	}
	return nil
}

// syncStore brings to the disk what the kernel has of a store whose daemon was killed: what is found in it counts as stored
// from now on, also what nobody has synced. It leaves notes about streams for which that fails.
func syncStore(dir string, data syncFile) error {
	known, err := noted(dir)
	if err != nil {
		return err
	}
	return eachStream(dir, func(stream, msgs string) error {
		if slices.Contains(known, stream) {
			return nil // all that may be missing is written again
		}
		o := synced{dir: msgs}
		err := o.syncNewest(dir, stream, data)
		o.kept.close()
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return o.note(dir, stream)
	})
}

// syncNewest syncs the stream, and writes its newest blocks again: if the daemon was killed during a sync that failed, nobody
// was told, and the kernel considers them written. Without room for that they stay as they are: a disk that is full must not
// prevent a start.
func (o *synced) syncNewest(dir, stream string, data syncFile) error {
	if err := o.sync(dir, stream, data); err != nil {
		return err
	}
	blocks, err := blocksOf(o.dir)
	if err != nil {
		return err
	}
	for _, n := range blocks[max(0, len(blocks)-2):] { // the newest may have been begun during that sync
		o.block = n
		err := rewrite(blockPath(o.dir, n), data)
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return posix.SyncPath(o.dir)
}
