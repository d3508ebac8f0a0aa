package journal

import (
	"testing"
	"time"
)

// TestALeadIsAskedForLessOften: each try costs the one who leads its place, so a member that does not get it waits longer
// and longer.
func TestALeadIsAskedForLessOften(t *testing.T) {
	tries, now := leadTries{}, time.Now()
	asked := 0
	for second := range 600 {
		at := now.Add(time.Duration(second) * leadAgain)
		if tries.may("a", at) {
			asked++
			tries.failed("a", at)
		}
	}
	if asked != 13 {
		t.Errorf("asked %d times in ten minutes", asked)
	}
	if !tries.may("b", now) {
		t.Error("another stream waits, too")
	}
	delete(tries, "a") // it has led since
	if !tries.may("a", now) {
		t.Error("it waits when it has led")
	}
}
