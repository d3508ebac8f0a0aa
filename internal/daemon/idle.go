package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// idleLook is how often a daemon looks whether it is idle.
	idleLook = 5 * time.Second
	// idleFirst is when it looks for the first time: soon, since the start itself has read
	// more than is kept of it.
	idleFirst = time.Second
	// idleQuiet is how much memory it takes meanwhile, in bytes, when it does nothing
	// but to keep its connections.
	idleQuiet = 256 << 10
	// idleWorth is how much it has taken at least since memory was last given back.
	idleWorth = 1 << 20
)

// FreeWhenIdle gives memory back to the system whenever the daemon is idle, until
// stop is called. The runtime by itself keeps some megabytes of garbage, for the next
// work that may be hours away: the start leaves as much, and on a small machine it
// is more than all that a minion needs.
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
					runtime.GC() // what is in pools, a block of the store among it, survives the first of two
					debug.FreeOSMemory()
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// allocated is how many bytes this process has ever taken.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// idle knows what was taken when it was last looked, and when memory was last given
// back.
type idle struct {
	seen, given uint64
	looks       int
}

// idleStart is how many looks give memory back in any case. What a start has taken becomes
// garbage by and by: the server keeps the newest block of its store for some seconds. A
// daemon that is at work at once, or takes nothing more, would hold it for long.
const idleStart = 5

// over says that the work which took the memory is over: there is memory worth
// giving back, and from now on it counts as given back.
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
