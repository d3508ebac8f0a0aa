package blockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/brinebus/brine/internal/posix"
)

// removalBytes is the size of the record that the server writes when it removes a message and keeps
// its block.
const removalBytes = 30

const (
	// spareBytes are for messages that are stored in the stream before the removal.
	spareBytes = 64 << 10
	// enoughBytes must be free, in addition to what is written, on a file system without
	// reservation.
	enoughBytes = 16 << 20
	// blockBytes is about how much the server writes into one block.
	blockBytes = 8 << 20
)

// Reserver reserves disk space for removals from the streams of a store while the server runs. The
// server writes a record for each removed message, and must not find a full disk then: if only a
// part of these records can be written, it waits for a lock that it holds itself, and answers no
// request about its store any more. Its methods may be called concurrently.
type Reserver struct {
	dir     string // of the store
	mu      sync.Mutex
	streams map[string]reserved
}

// reserved is the space of a stream.
type reserved struct {
	msgs  string      // the directory of its blocks
	block os.FileInfo // the newest one, when it was checked
	end   int64       // the offset up to which space is reserved
}

// holds reports whether the space is still reserved after this block: it is lost if the file is
// replaced or truncated.
func (r reserved) holds(now os.FileInfo) bool {
	return r.block != nil && os.SameFile(r.block, now) && r.block.Size() <= now.Size()
}

// NewReserver returns a Reserver for the store in dir.
func NewReserver(dir string) *Reserver {
	return &Reserver{dir: dir, streams: map[string]reserved{}}
}

// Reserve reserves space for the records of this many removals from a stream: after its newest
// block, where the server writes them. It fails with ENOSPC if there is not enough.
func (r *Reserver) Reserve(stream string, messages uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := int64(min(messages, blockBytes/removalBytes)) * removalBytes
	for range 3 {
		err := r.reserve(stream, size)
		if err == nil {
			return nil
		}
		delete(r.streams, stream)
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make room to remove messages from %s: %w", stream, err)
		}
	}
	return nil // a stream without blocks has nothing to remove
}

func (r *Reserver) reserve(stream string, size int64) (err error) {
	have := r.streams[stream]
	if have.msgs == "" {
		if have.msgs, err = folderOf(r.dir, stream); err != nil {
			return err
		}
	}
	blocks, err := blocksOf(have.msgs)
	if err != nil || len(blocks) == 0 {
		return errors.Join(err, fs.ErrNotExist)
	}
	path := blockPath(have.msgs, blocks[len(blocks)-1])
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !have.holds(now) || now.Size()+size+spareBytes > have.end {
		if err := allocate(path, size+2*spareBytes); err != nil {
			return err
		}
		have.end = now.Size() + size + 2*spareBytes
	}
	have.block = now
	r.streams[stream] = have
	return nil
}

// Forget is for a store that is reopened: that may truncate the space after its messages.
func (r *Reserver) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.streams)
}

// allocate reserves space after the end of a block.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err = posix.AllocateMore(f, size); errors.Is(err, errors.ErrUnsupported) {
		return enough(path, uint64(size))
	}
	return err
}

// enough reports whether a file system without reservation has far more than size bytes free.
func enough(path string, size uint64) error {
	s, err := posix.StatFS(path)
	if err == nil && s.Available*s.BlockSize < size+enoughBytes {
		err = syscall.ENOSPC
	}
	return err
}
