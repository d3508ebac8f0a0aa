package blockfile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// Learner stores summaries of blocks that a running server has finished, so that the next start
// reads only later ones. A block that it misses only costs time at that start. It is for one
// goroutine.
type Learner struct {
	dir   string // of the store
	seen  map[string]identity
	pause func() error
	read  reader
}

// NewLearner returns a Learner for the store in dir. It calls pause after each block that it reads;
// an error of pause ends Learn.
func NewLearner(dir string, pause func() error) *Learner {
	return &Learner{dir: dir, seen: map[string]identity{}, pause: pause}
}

// Learn reads blocks that are new or changed.
func (l *Learner) Learn() error {
	defer func() { l.read.window = nil }()
	dirs, err := streamDirs(l.dir)
	if err != nil {
		return err
	}
	for _, msgs := range dirs {
		if err := l.stream(msgs); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errChanged) {
			return err
		}
	}
	return nil
}

func (l *Learner) stream(msgs string) error {
	name := filepath.Base(filepath.Dir(msgs))
	blocks, err := blocksOf(msgs)
	if err != nil || len(blocks) < 2 {
		return err
	}
	done, learned := blocks[:len(blocks)-1], false
	for _, n := range done {
		news, err := l.block(msgs, name, n)
		if err != nil {
			return err
		}
		learned = learned || news
	}
	if !learned {
		return nil
	}
	l.forget(msgs, blocks)
	if err := dropSummaries(l.dir, name, done); err != nil {
		return err
	}
	return applyRemovals(msgs, name, l.known(msgs, name, done), func(n numbered) error {
		return errors.Join(n.write(l.dir, name, n.number), l.pause())
	})
}

// block reports whether it has stored a summary.
func (l *Learner) block(msgs, stream string, n int) (bool, error) {
	path := blockPath(msgs, n)
	now := time.Now()
	id, err := identify(path)
	if err != nil || l.seen[path] == id || !id.stable(now) {
		return false, err
	}
	if _, ok := readSummary(l.dir, stream, n, id); ok {
		l.seen[path] = id
		return false, nil
	}
	s, err := l.read.summarise(path, stream, n, id)
	if errors.Is(err, errDamaged) || err == nil && id.size == 0 { // the next start reports it
		l.seen[path] = id
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := s.write(l.dir, stream, n); err != nil {
		return false, err
	}
	l.seen[path] = id
	return true, l.pause()
}

// forget removes what is known of deleted blocks.
func (l *Learner) forget(msgs string, blocks []int) {
	have := map[string]bool{}
	for _, n := range blocks {
		have[blockPath(msgs, n)] = true
	}
	for path := range l.seen {
		if filepath.Dir(path) == msgs && !have[path] {
			delete(l.seen, path)
		}
	}
}

// known returns the blocks that have summaries.
func (l *Learner) known(msgs, stream string, blocks []int) (known []numbered) {
	for _, n := range blocks {
		if s, ok := readSummary(l.dir, stream, n, l.seen[blockPath(msgs, n)]); ok {
			known = append(known, numbered{n, s})
		}
	}
	return known
}
