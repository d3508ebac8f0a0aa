//go:build !race

package acl

import (
	"strings"
	"testing"
	"time"
)

// A decision among a thousand rules takes less than 50 microseconds. The best of many runs
// counts: other load on the machine can only make a run slower.
func TestDecisionsAreQuick(t *testing.T) {
	for name, f := range slowest(t) {
		if allowed := f() == Allow; allowed != strings.HasPrefix(name, "rules of") {
			t.Errorf("%s: allowed %v", name, allowed)
		}
		best := time.Hour
		for range 500 {
			begin := time.Now()
			f()
			best = min(best, time.Since(begin))
		}
		if t.Logf("%s: %s", name, best); best > 50*time.Microsecond {
			t.Errorf("%s: %s at best", name, best)
		}
	}
}
