package fileserver

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/posix"
)

// maxSums limits the memory for checksums; beyond it they are computed again.
const maxSums = 50_000

// sums caches the checksums of unchanged files.
type sums struct {
	mu    sync.Mutex
	known map[fileState]string
}

// fileState identifies the content of a file, as far as the system can distinguish it.
type fileState struct {
	dev, ino         uint64
	size             int64
	modified, status int64 // nanoseconds
}

// stateOf returns false for a file that has just changed: it may change again within the same tick
// of the clock.
func stateOf(info fs.FileInfo) (fileState, bool) {
	s, err := posix.StatOf(info)
	if err != nil || time.Since(info.ModTime()).Abs() < 100*time.Millisecond {
		return fileState{}, false
	}
	return fileState{s.Device, s.Inode, info.Size(), s.Modified, s.Changed}, true
}

// of returns the SHA-256 of the content and sets f to its beginning.
func (s *sums) of(f *os.File, info fs.FileInfo) (string, error) {
	state, settled := stateOf(info)
	s.mu.Lock()
	sum, known := s.known[state]
	s.mu.Unlock()
	if settled && known {
		return sum, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	sum = hex.EncodeToString(h.Sum(nil))
	if settled {
		s.remember(state, sum)
	}
	return sum, nil
}

func (s *sums) remember(state fileState, sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSums {
		s.known = map[fileState]string{}
	}
	s.known[state] = sum
}
