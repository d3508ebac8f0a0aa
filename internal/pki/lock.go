package pki

import (
	"fmt"
	"os"
	"syscall"
)

// LockDir waits until no other process works on the keys in dir and keeps all
// out until unlock is called. Holders take it for milliseconds, so there is no
// time-out. It ends with the process, whatever happens.
func LockDir(dir string) (unlock func(), err error) { return lockDir(dir, syscall.LOCK_EX) }

// lockDir takes a shared or exclusive lock. It lies on the directory itself, so
// that no user's lock file stands in another user's way.
func lockDir(dir string, how int) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("key directory %s: %w", dir, bareCause(err))
	}
	for {
		err = syscall.Flock(int(d.Fd()), how)
		if err == nil {
			return func() { d.Close() }, nil
		}
		if err != syscall.EINTR {
			d.Close()
			return nil, fmt.Errorf("lock key directory %s: %w", dir, err)
		}
	}
}
