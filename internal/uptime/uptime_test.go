package uptime

import (
	"testing"
	"time"
)

// TestTheClockGoesOn: it does not go back, and what is computed with it is right.
func TestTheClockGoesOn(t *testing.T) {
	last := Now()
	for range 1000 {
		now := Now()
		if now.IsZero() || now.Sub(last) < 0 {
			t.Fatalf("after %d comes %d", last, now)
		}
		last = now
	}
	if later := last.Add(time.Hour); later.Sub(last) != time.Hour || last.Sub(later) != -time.Hour {
		t.Errorf("%d is an hour after %d", later, last)
	}
	if before := elapsed(); before <= 0 || elapsed() < before {
		t.Errorf("it begins with %s", before)
	}
}
