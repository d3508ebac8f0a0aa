package saltevent

import (
	"testing"
	"time"
)

// What is asked before events are removed says which ones.
func TestOlderThan(t *testing.T) {
	for before, want := range map[string]string{
		"7d": "older than 7d", "90s": "older than 90s", "2026-11-21": "before 2026-11-21", "2026-11-21T12:00:00": "before 2026-11-21T12:00:00", "15": "before the event 15",
	} {
		_, seq, err := readSince("--before", before, time.Now())
		if got := olderThan(before, seq); err != nil || got != want {
			t.Errorf("--before %s: %q, %v; want %q", before, got, err, want)
		}
	}
}
