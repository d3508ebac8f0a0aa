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

// TestWhoCanStoreNothingLeadsNothing: also right after it has lost the others, before it looks again who leads.
func TestWhoCanStoreNothingLeadsNothing(t *testing.T) {
	store := &broken{failed: make(chan struct{})}
	j := &Journal{writer: &writer{store: store}}
	j.led.whole.Store(true)
	if !Leads(j) {
		t.Error("it led all at the last look, and leads nothing")
	}
	close(store.failed)
	if Leads(j) {
		t.Error("it can store nothing, and leads")
	}
}
