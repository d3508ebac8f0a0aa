package upstream

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// verdicts records which uplinks were refused by all of their masters. The minion ends when all
// uplinks were.
type verdicts struct {
	mu      sync.Mutex
	uplinks int
	errs    map[*Uplink]error
}

// refused records a refusal. It returns an error if no uplink is left.
func (v *verdicts) refused(u *Uplink, err error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.uplinks == 1 {
		return err
	}
	if v.errs == nil {
		v.errs = map[*Uplink]error{}
	}
	v.errs[u] = err
	if len(v.errs) < v.uplinks {
		return nil
	}
	var all error
	for _, u := range slices.SortedFunc(maps.Keys(v.errs), func(a, b *Uplink) int { return a.Number - b.Number }) {
		all = errors.Join(all, v.errs[u])
	}
	return all
}

// clear records that an uplink is not refused, or no longer.
func (v *verdicts) clear(u *Uplink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.errs, u)
}
