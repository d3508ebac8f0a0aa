package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The runtime lets as much garbage lie as there is memory in use, so that what a peer makes
// the daemon hold for a moment counts twice. It is collected earlier: as long as all fits
// into leanMemory only where there is no more room, and beyond that when a quarter of what is
// in use has gathered; where much is in use, of which each collection costs more, up to a half.
const (
	leanMemory = 256 << 20
	leanStep   = 8 << 20 // the limit is changed by that much at least: each change stops all for a moment
)

// Lean bounds the garbage of this process, from now until its end. A GOMEMLIMIT or GOGC of
// whoever starts the daemon goes before it.
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

// leanLimit is how much memory the process may have while so much of it is in use.
func leanLimit(used int64) int64 { return max(leanMemory, used+used/4, used+used/2-leanMemory/2) }

// inUse is what the last collection has left, with the stacks.
func inUse() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() + sample[1].Value.Uint64())
}

// collection is garbage as soon as it is made, and so tells of the collection that finds it.
// It has a pointer: the smallest objects without one share memory, and need never be found.
type collection struct{ _ *collection }

func afterEachCollection(c *collection, f func()) {
	runtime.SetFinalizer(c, func(c *collection) {
		f()
		afterEachCollection(c, f)
	})
}
