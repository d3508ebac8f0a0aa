package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// idleLook is how often a daemon checks whether it is idle.
	idleLook = 5 * time.Second
	// idleFirst is the time of the first check: soon, since the start has read more than is kept.
	idleFirst = time.Second
	// idleQuiet is how many bytes a daemon allocates between two checks if it only keeps its
	// connections.
	idleQuiet = 256 << 10
	// idleWorth is the minimum number of bytes allocated since memory was last returned.
	idleWorth = 1 << 20
)

// FreeWhenIdle returns memory to the system whenever the daemon is idle, until stop is called.
// Otherwise the runtime keeps some megabytes of garbage for the next work, which may be hours away:
// after the start they are more than all that a minion needs on a small machine.
func FreeWhenIdle(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var i idle
		next := time.NewTimer(idleFirst)
		defer next.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-next.C:
				next.Reset(idleLook)
				if i.over(allocated()) {
					runtime.GC() // the contents of pools, for example a block of the store, survive the first of two
					debug.FreeOSMemory()
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// allocated returns how many bytes this process has ever allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// idle stores the allocated bytes at the last check, and when memory was last returned.
type idle struct {
	seen, given uint64
	looks       int
}

// idleStart is the number of first checks that return memory in any case. Memory from the start
// becomes garbage gradually: the server keeps the newest block of its store for some seconds.
// Otherwise a daemon that is busy at once, or allocates nothing more, would keep it for long.
const idleStart = 5

// over reports whether the work that allocated memory has ended, so that it is worth returning;
// then this memory counts as returned.
func (i *idle) over(now uint64) bool {
	i.looks++
	quiet := now-i.seen < idleQuiet
	i.seen = now
	if i.looks > idleStart && (!quiet || now-i.given < idleWorth) {
		return false
	}
	i.given = now
	return true
}
