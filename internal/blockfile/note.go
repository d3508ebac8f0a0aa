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
// from now on, also what nobody has synced. It leaves notes about streams for which that fails, and returns the blocks that
// it could not write again for want of room.
func syncStore(dir string, data syncFile) (full map[string][]int, err error) {
	known, err := noted(dir)
	if err != nil {
		return nil, err
	}
	full = map[string][]int{}
	return full, eachStream(dir, func(stream, msgs string) error {
		if slices.Contains(known, stream) {
			return nil // all that may be missing is written again
		}
		o := synced{dir: msgs}
		blocks, err := o.syncNewest(dir, stream, data)
		o.kept.close()
		if len(blocks) > 0 {
			full[stream] = blocks
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return o.note(dir, stream)
	})
}

// syncNewest syncs the stream, and writes its newest blocks again: if the daemon was killed during a sync that failed, nobody
// was told, and the kernel considers them written. Those for which there is no room are returned, and stay as they are: a disk
// that is full must not prevent a start.
func (o *synced) syncNewest(dir, stream string, data syncFile) (full []int, err error) {
	if err := o.sync(dir, stream, data); err != nil {
		return nil, err
	}
	blocks, err := blocksOf(o.dir)
	if err != nil {
		return nil, err
	}
	for _, n := range blocks[max(0, len(blocks)-2):] { // the newest may have been begun during that sync
		o.block = n
		err := rewrite(blockPath(o.dir, n), data)
		switch {
		case noRoom(err):
			full = append(full, n)
		case err != nil:
			return full, err
		}
	}
	return full, posix.SyncPath(o.dir)
}

func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// rewrite writes the blocks in Rewrite again; those for which there is still no room stay there. The store must be closed.
func (m *State) rewrite(dir string, data syncFile) error {
	left := map[string][]int{}
	for stream, blocks := range m.Rewrite {
		msgs, err := folderOf(dir, stream)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, n := range blocks {
			err := rewrite(blockPath(msgs, n), data)
			switch {
			case noRoom(err):
				left[stream] = append(left[stream], n)
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return err
			}
		}
		if err := posix.SyncPath(msgs); err != nil {
			return err
		}
	}
	m.Rewrite = left
	return nil
}
