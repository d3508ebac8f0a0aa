package blockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/brinebus/brine/internal/atomicfile"
)

// Syncer makes durable what a running server has written to the blocks of its streams,
// many messages at once: the server itself can only sync each one. It acknowledges a
// message when the kernel has it, so a sync of the file that begins after the
// acknowledgement covers it. Its methods may be called concurrently.
type Syncer struct {
	dir     string // of the store
	mu      sync.Mutex
	streams map[string]*synced
}

// synced is how far a stream is known to be on the disk. One goroutine syncs, and those
// that come meanwhile share the next one: group guards the rest.
type synced struct {
	dir   string // of the blocks; "" as long as nothing was synced
	block int    // the newest one

	group atomicfile.Group
}

// NewSyncer returns one for the store in dir.
func NewSyncer(dir string) *Syncer { return &Syncer{dir: dir, streams: map[string]*synced{}} }

// Sync returns when all is on the disk that the server had acknowledged for the stream
// when it was called.
func (s *Syncer) Sync(stream string) error {
	s.mu.Lock()
	one := s.streams[stream]
	if one == nil {
		one = &synced{}
		s.streams[stream] = one
	}
	s.mu.Unlock()

	return one.group.Do(func() error {
		if err := one.sync(s.dir, stream); err != nil {
			return fmt.Errorf("sync the store: %w", err)
		}
		return nil
	})
}

func (o *synced) sync(dir, stream string) error {
	first := o.dir == ""
	if first {
		found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "msgs"))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("%s has no files: %w", stream, fs.ErrNotExist)
		}
		o.dir = found[0]
		if err := syncWay(dir, o.dir); err != nil {
			return err
		}
	}
	begun := o.block
	for {
		err := syncData(blockPath(o.dir, o.block))
		switch {
		case err == nil:
			o.block++
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		// It is the first one behind the newest, or the oldest ones were removed.
		blocks, err := blocksOf(o.dir)
		if err != nil {
			return err
		}
		if n := len(blocks); n == 0 || blocks[n-1] < o.block {
			o.block = max(o.block-1, 0)
			break
		}
		for _, n := range blocks {
			if n >= o.block {
				o.block = n
				break
			}
		}
	}
	if first || o.block != begun {
		return syncFile(o.dir)
	}
	return nil
}

// syncWay syncs the folders between top and dir, and the files that describe the stream.
func syncWay(top, dir string) error {
	parent := filepath.Dir(dir)
	for _, name := range []string{"meta.inf", "meta.sum"} {
		if err := syncFile(filepath.Join(parent, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for ; len(parent) >= len(top); parent = filepath.Dir(parent) {
		if err := syncFile(parent); err != nil {
			return err
		}
	}
	return nil
}

// syncData leaves out the times of the file, which nobody reads.
func syncData(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = syscall.Fdatasync(int(f.Fd()))
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Fdatasync(int(f.Fd()))
	}
	return errors.Join(err, f.Close())
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
