package rpc

import "sync"

// Shares divide a number of units, for example of bytes, among those that cause their use, by a
// key. Nobody waits: what exceeds the share of a key, or what there is, is refused.
type Shares struct {
	each, all int
	mu        sync.Mutex
	held      map[string]int
	sum       int
}

// NewShares returns shares of which each key may hold so many units, and all keys together.
func NewShares(each, all int) *Shares { return &Shares{each: each, all: all, held: map[string]int{}} }

// Take takes n units for a key. It reports false, and takes none, if they exceed a limit.
func (s *Shares) Take(key string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[key]+n > s.each || s.sum+n > s.all {
		return false
	}
	s.held[key] += n
	s.sum += n
	return true
}

// Give gives n units of a key back.
func (s *Shares) Give(key string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum -= n
	if s.held[key] -= n; s.held[key] <= 0 {
		delete(s.held, key)
	}
}
