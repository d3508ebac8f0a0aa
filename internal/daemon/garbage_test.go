package daemon

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestLeanLimit(t *testing.T) {
	const mib = 1 << 20
	for used, want := range map[int64]int64{0: leanMemory, 100 * mib: leanMemory, 200 * mib: leanMemory, 300 * mib: 375 * mib, 512 * mib: 640 * mib, 1000 * mib: 1372 * mib} {
		if got := leanLimit(used); got != want {
			t.Errorf("with %d MiB in use the limit is %d MiB, want %d", used/mib, got/mib, want/mib)
		}
	}
}

// The limit follows what is in use, so that a daemon with much of it does not do nothing but
// collect.
func TestLean(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	t.Setenv("GOGC", "")
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	Lean()
	held := make([]byte, 300<<20)
	awaitLimit(t, func(limit int64) bool { return limit >= 370<<20 })
	runtime.KeepAlive(held)
	held = nil
	awaitLimit(t, func(limit int64) bool { return limit == leanMemory })
}

func awaitLimit(t *testing.T, good func(int64) bool) {
	t.Helper()
	for range 1000 {
		runtime.GC()
		if good(debug.SetMemoryLimit(-1)) {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("the limit is %d MiB", debug.SetMemoryLimit(-1)>>20)
}

// What is large has the garbage collected before it is taken, unless there is room for it.
func TestMakeRoom(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing else collects
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	runtime.GC()
	collected := func(n int) bool {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		MakeRoom(n)
		runtime.ReadMemStats(&after)
		return after.NumGC > before.NumGC
	}
	if collected(60 << 20) {
		t.Error("it collects though there is room")
	}
	held := make([]byte, 200<<20)
	runtime.KeepAlive(held)
	held = nil
	if collected(largeRoom - 1) {
		t.Error("it collects for what is not large")
	}
	if !collected(60 << 20) {
		t.Error("it collects nothing")
	}
}
