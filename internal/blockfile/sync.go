package blockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/posix"
)

// Syncer syncs what a running server has written to the blocks of its streams, many messages at
// once: the server itself can only sync each one. The server acknowledges a message when the kernel
// has it, so a sync of the file that begins after the acknowledgement covers it. Its methods may be
// called concurrently.
//
// The kernel tells each descriptor of a failed write once, and one that is opened later only if nobody was told before.
// The server syncs files itself every minute or two, so the newest block of each stream stays open here.
//
// After a failed sync the kernel considers the data written, although it is not: the next sync
// succeeds, but the disk does not have the data. So a stream whose sync has failed stays failed
// until Renew, or until the Recover of the next start, which finds a note about it.
type Syncer struct {
	dir     string // of the store
	mu      sync.Mutex
	streams map[string]*synced
	stored  map[string]int // the newest block of each stream when Stored was called
	data    syncFile       // posix.SyncData; tests use failing disks
}

// syncFile syncs the data of an open file.
type syncFile func(*os.File) error

func (s syncFile) path(path string) error {
	f, err := posix.OpenToSync(path)
	if err != nil {
		return err
	}
	return errors.Join(s(f), f.Close())
}

// synced is how much of a stream is known to be on disk. One goroutine syncs; calls that arrive
// meanwhile share the next sync: group guards the rest.
type synced struct {
	dir   string // of the blocks; "" before the first sync
	way   bool   // the directories above are synced
	block int    // the newest synced one, which may have grown since
	kept  kept   // that one

	group  atomicfile.Group
	mu     sync.Mutex // guards the next fields, and excludes Renew during a sync
	failed error      // error of the first failed sync
}

// NewSyncer returns a Syncer for the store in dir.
func NewSyncer(dir string) *Syncer {
	return &Syncer{dir: dir, streams: map[string]*synced{}, data: posix.SyncData}
}

// Sync returns when everything is on disk that the server had acknowledged for the stream before
// the call.
func (s *Syncer) Sync(stream string) error {
	s.mu.Lock()
	one := s.streams[stream]
	if one == nil {
		one = &synced{}
		s.streams[stream] = one
	}
	s.mu.Unlock()

	return one.group.Do(func() error {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.try(s.dir, stream, s.data)
	})
}

// try is sync, unless it has failed before. The caller holds mu.
func (o *synced) try(dir, stream string, data syncFile) error {
	if o.failed != nil {
		return o.failed
	}
	err := o.sync(dir, stream, data)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("sync the store: %w", err)
	if !errors.Is(err, fs.ErrNotExist) {
		o.failed = err
		err = errors.Join(err, o.note(dir, stream))
	}
	return err
}

// Stored says that all that the store has is on the disk, and the server has not opened it since: Again, Renew and All
// sync only later blocks of a stream that nobody has synced.
func (s *Syncer) Stored() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = map[string]int{}
	return eachStream(s.dir, func(stream, msgs string) error {
		blocks, err := blocksOf(msgs)
		if n := len(blocks); n > 0 {
			s.stored[stream] = blocks[n-1] // which the server may continue
		}
		return err
	})
}

// eachStream calls f for each stream with the directory of its blocks.
func eachStream(dir string, f func(stream, msgs string) error) error {
	found, err := streamDirs(dir)
	if err != nil {
		return err
	}
	for _, msgs := range found {
		if err := f(filepath.Base(filepath.Dir(msgs)), msgs); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for each stream of the store, with its mutex held, until ctx ends.
func (s *Syncer) each(ctx context.Context, f func(stream string, one *synced) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := eachStream(s.dir, func(stream, _ string) error {
		if s.streams[stream] == nil {
			s.streams[stream] = &synced{block: s.stored[stream]}
		}
		return nil
	})
	for stream, one := range s.streams {
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		one.mu.Lock()
		err = errors.Join(err, f(stream, one))
		one.mu.Unlock()
	}
	return err
}

// All syncs all streams, also those that nobody has synced before.
func (s *Syncer) All(ctx context.Context) error {
	return s.each(ctx, func(stream string, one *synced) error {
		if err := one.try(s.dir, stream, s.data); one.failed != nil {
			return err
		}
		return nil // or it was removed meanwhile
	})
}

// Again is All after a failure: it leaves notes about streams that fail. The server has reported that
// it cannot write: if that was a sync of its own, it has told nobody which one.
func (s *Syncer) Again() {
	_ = s.All(context.Background()) // Renew and Sync return it
}

// Renew writes data of streams whose sync has failed to new, synced files, as long as the kernel
// still has it, and reports whether there were any. The store must be closed. What the kernel has
// lost is then found by Recover.
func (s *Syncer) Renew() (renewed bool, err error) {
	err = s.each(context.Background(), func(stream string, one *synced) error {
		_ = one.try(s.dir, stream, s.data) // the server may have got an error of which this daemon does not know yet
		one.kept.close()
		if one.failed == nil {
			return nil
		}
		renewed = true
		if err := one.renew(s.dir, s.data); err != nil {
			return err
		}
		return dropNote(s.dir, stream)
	})
	return renewed, err
}

func (o *synced) renew(dir string, data syncFile) error {
	if err := o.write(dir, data); err != nil {
		return fmt.Errorf("write again what could not be synced: %w", err)
	}
	o.failed, o.way = nil, true
	return nil
}

func (o *synced) write(dir string, data syncFile) error {
	files := metaFiles(o.dir)
	if o.way {
		blocks, err := blocksOf(o.dir)
		if err != nil {
			return err
		}
		files = nil
		for _, n := range blocks {
			if n >= o.block {
				files = append(files, blockPath(o.dir, n))
			}
		}
	}
	for _, path := range files {
		if err := rewrite(path, data); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(posix.SyncPath(o.dir), syncWay(dir, o.dir))
}

// rewrite replaces a file with a synced copy.
func rewrite(path string, data syncFile) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	copied := path + ".new"
	if err = os.WriteFile(copied, b, 0o600); err == nil {
		err = data.path(copied)
	}
	if err != nil {
		return errors.Join(err, os.Remove(copied))
	}
	return os.Rename(copied, path)
}

func (o *synced) sync(dir, stream string, data syncFile) error {
	if o.dir == "" {
		found, err := folderOf(dir, stream)
		if err != nil {
			return err
		}
		o.dir = found
	}
	// The server writes no more to a block that has a newer one beside it. What it writes to the newest one of this list
	// while that is synced, before it begins the next one, is for the next call, which begins with the same block.
	blocks, err := blocksOf(o.dir)
	if err != nil {
		return err
	}
	if n := len(blocks); n > 0 && blocks[n-1] < o.block { // somebody has made the stream anew
		o.way, o.block = false, 0
	}
	first, begun := !o.way, o.block
	if first {
		if err := syncWay(dir, o.dir); err != nil {
			return err
		}
		o.way = true
	}
	for _, n := range blocks {
		if n < begun {
			continue
		}
		o.block = n
		if err := o.kept.sync(blockPath(o.dir, n), data); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be removed meanwhile
			return err
		}
	}
	if first || o.block != begun {
		return posix.SyncPath(o.dir)
	}
	return nil
}

// metaFiles returns the files that describe the stream with these blocks.
func metaFiles(dir string) []string {
	parent := filepath.Dir(dir)
	return []string{filepath.Join(parent, "meta.inf"), filepath.Join(parent, "meta.sum")}
}

// syncWay syncs the directories between top and dir, and the files that describe the stream.
func syncWay(top, dir string) error {
	parent := filepath.Dir(dir)
	for _, path := range metaFiles(dir) {
		if err := posix.SyncPath(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for ; len(parent) >= len(top); parent = filepath.Dir(parent) {
		if err := posix.SyncPath(parent); err != nil {
			return err
		}
	}
	return nil
}
