package upstream

import (
	"errors"
	"sync"
)

// verdicts remembers which uplinks were refused by all of their masters. The
// minion ends when every one was.
type verdicts struct {
	mu      sync.Mutex
	uplinks int
	errs    map[*Uplink]error
}

// refused notes a refusal. It returns an error when no uplink is left.
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
	for _, err := range v.errs {
		all = errors.Join(all, err)
	}
	return all
}

// clear notes that an uplink is not refused, or not any more.
func (v *verdicts) clear(u *Uplink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.errs, u)
}
