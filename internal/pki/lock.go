package pki

import (
	"errors"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/posix"
)

// LockDir waits until no other process works on the keys in dir, and keeps others out until
// unlock is called. It is held for milliseconds, so there is no timeout. The lock ends with the
// process in any case.
func LockDir(dir string) (unlock func(), err error) { return lockDir(dir, posix.Exclusive) }

// Pauses between two tries for a lock that another process holds.
const (
	minLockPause = 200 * time.Microsecond
	maxLockPause = 10 * time.Millisecond
)

// lockDir takes a shared or exclusive lock. It polls instead of waiting in the kernel, where
// each waiting call would hold a thread of the process.
func lockDir(dir string, how posix.LockMode) (unlock func(), err error) {
	d, err := posix.OpenLock(dir)
	if err != nil {
		return nil, fmt.Errorf("key directory %s: %w", dir, bareCause(err))
	}
	var pauses backoff.Pauses
	for {
		err = posix.TryLock(d, how)
		if err == nil {
			return func() { d.Close() }, nil
		}
		if !errors.Is(err, posix.ErrLocked) {
			d.Close()
			return nil, fmt.Errorf("lock key directory %s: %w", dir, err)
		}
		time.Sleep(pauses.Next(minLockPause, maxLockPause))
	}
}
