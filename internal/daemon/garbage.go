package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// By default the runtime lets as much garbage accumulate as there is memory in use, so memory that
// a peer makes the daemon use briefly counts twice. This collects earlier: below leanMemory, only
// when that is full; above it, when garbage reaches a quarter of the memory in use; with much
// memory in use, where each collection costs more, up to a half.
const (
	leanMemory = 256 << 20
	largeRoom  = 8 << 20
	leanStep   = 8 << 20 // the minimum change of the limit: each change briefly stops all goroutines
)

// Lean limits the garbage of this process until its end. GOMEMLIMIT and GOGC in the environment
// take precedence.
func Lean() {
	if os.Getenv("GOMEMLIMIT") != "" || os.Getenv("GOGC") != "" {
		return
	}
	debug.SetMemoryLimit(leanMemory)
	afterEachCollection(&collection{}, func() func() {
		limit := int64(leanMemory)
		return func() {
			if next := leanLimit(inUse()); next != limit && (next == leanMemory || max(next-limit, limit-next) >= leanStep) {
				limit = next
				debug.SetMemoryLimit(limit)
			}
		}
	}())
}

// MakeRoom collects garbage now if n more bytes, and a copy of them, would bring the process near
// its limit: a large allocation would otherwise exceed the limit fully before a collection that it
// starts has ended. It does nothing for small n.
func MakeRoom(n int) {
	if n < largeRoom {
		return
	}
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if int64(sample[0].Value.Uint64())+2*int64(n) > leanMemory*3/4 {
		runtime.GC()
	}
}

// leanLimit returns the memory limit for this much memory in use.
func leanLimit(used int64) int64 { return max(leanMemory, used+used/4, used+used/2-leanMemory/2) }

// inUse returns the memory left after the last collection, including stacks.
func inUse() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() + sample[1].Value.Uint64())
}

// collection becomes garbage at once, so its finalizer runs at the next collection. It contains a
// pointer: the smallest objects without pointers share memory and may never be finalized.
type collection struct{ _ *collection }

func afterEachCollection(c *collection, f func()) {
	runtime.SetFinalizer(c, func(c *collection) {
		f()
		afterEachCollection(c, f)
	})
}
