package fileserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/posix"
)

// maxSums limits the memory for checksums; beyond it they are computed again.
const maxSums = 50_000

// sums caches the checksums of unchanged files. One request computes that of a file, also to its end if
// its sender has gone; the others wait for it.
type sums struct {
	mu      sync.Mutex
	known   map[fileState]string
	working map[fileState]chan struct{} // closed when a computation has ended
}

// fileState identifies the content of a file, as far as the system can distinguish it.
type fileState struct {
	dev, ino         uint64
	size             int64
	modified, status int64 // nanoseconds
}

// stateOf returns false for a file that has just changed: it may change again within the same tick
// of the clock. Its state says only which file it is.
func stateOf(info fs.FileInfo) (fileState, bool) {
	s, err := posix.StatOf(info)
	if err != nil {
		return fileState{}, false
	}
	if time.Since(info.ModTime()).Abs() < 100*time.Millisecond {
		return fileState{dev: s.Device, ino: s.Inode}, false
	}
	return fileState{s.Device, s.Inode, info.Size(), s.Modified, s.Changed}, true
}

// of returns the SHA-256 of the content and sets f to its beginning. Those that have waited for a sum of their state of
// the file share it, although the file may have another state by then: otherwise each would read a file that goes on
// changing. A file that had just changed may have settled after the wait: stat is called again, and then all that have
// waited share the sum. The returned info is the one that the sum belongs to.
func (s *sums) of(ctx context.Context, f io.ReadSeeker, info fs.FileInfo, stat func() (fs.FileInfo, error)) (string, fs.FileInfo, error) {
	for {
		state, settled := stateOf(info)
		sum, end, others := s.turn(state)
		if others == nil {
			if end != nil {
				var err error
				if sum, err = s.compute(ctx, f, state, settled, end); err != nil {
					return "", nil, err
				}
			}
			return sum, info, nil
		}
		select {
		case <-others:
		case <-ctx.Done():
			return "", nil, context.Cause(ctx)
		}
		if settled {
			continue
		}
		var err error
		if info, err = stat(); err != nil {
			return "", nil, err
		}
	}
}

// compute reads a file; end is called when that has ended.
func (s *sums) compute(ctx context.Context, f io.ReadSeeker, state fileState, settled bool, end func()) (string, error) {
	defer end()
	from := io.Reader(f)
	if !settled {
		from = unlessEnded{ctx, f} // the sum is for nobody else
	}
	h := sha256.New()
	if _, err := io.Copy(h, from); err != nil {
		return "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if settled {
		s.remember(state, sum)
	}
	return sum, nil
}

// turn returns a known sum; or what is closed when others have computed one of this file; or, if nobody does,
// end, which is to be called after it was computed.
func (s *sums) turn(state fileState) (sum string, end func(), others <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sum, known := s.known[state]; known {
		return sum, nil, nil
	}
	if working := s.working[state]; working != nil {
		return "", nil, working
	}
	return "", s.begin(state), nil
}

// begin records a computation, and returns what ends it. The caller holds mu.
func (s *sums) begin(state fileState) (end func()) {
	done := make(chan struct{})
	if s.working == nil {
		s.working = map[fileState]chan struct{}{}
	}
	s.working[state] = done
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.working, state)
		close(done)
	}
}

// unlessEnded reads until ctx ends.
type unlessEnded struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r unlessEnded) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(b)
}

func (s *sums) remember(state fileState, sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSums {
		s.known = map[fileState]string{}
	}
	s.known[state] = sum
}
