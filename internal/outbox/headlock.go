package outbox

import "context"

// headLock is a lock that can be waited for with a limit, since it is held while the master is asked. It is made
// with room for one.
type headLock chan struct{}

func (l headLock) Lock() { l <- struct{}{} }

func (l headLock) Unlock() { <-l }

// lockWithin is Lock; it is false if ctx ends before.
func (l headLock) lockWithin(ctx context.Context) bool {
	select {
	case l <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
