package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// restLook is how often a daemon looks whether it has come to rest.
	restLook = 5 * time.Second
	// restFirst is when it looks for the first time: soon, since the start itself has read
	// more than is kept of it.
	restFirst = time.Second
	// restQuiet is how much memory it takes meanwhile, in bytes, when it does nothing
	// but to keep its connections.
	restQuiet = 256 << 10
	// restWorth is how much it has taken at least since memory was last given back.
	restWorth = 1 << 20
)

// Rest gives memory back to the system whenever the daemon has come to rest, until
// stop is called. The runtime by itself keeps some megabytes of garbage, for the next
// work that may be hours away: the start leaves as much, and on a small machine it
// is more than all that a minion needs.
func Rest(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var r rest
		next := time.NewTimer(restFirst)
		defer next.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-next.C:
				next.Reset(restLook)
				if r.over(allocated()) {
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

// rest knows what was taken when it was last looked, and when memory was last given
// back.
type rest struct {
	seen, given uint64
	looks       int
}

// restStart is how many looks give memory back in any case. What a start has taken becomes
// garbage by and by: the server keeps the newest block of its store for some seconds. A
// daemon that is at work at once, or takes nothing more, would hold it for long.
const restStart = 5

// over says that the work which took the memory is over: memory is worth to be given
// back, and now counts as such.
func (r *rest) over(now uint64) bool {
	r.looks++
	quiet := now-r.seen < restQuiet
	r.seen = now
	if r.looks > restStart && (!quiet || now-r.given < restWorth) {
		return false
	}
	r.given = now
	return true
}
