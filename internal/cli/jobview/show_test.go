package jobview

import (
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

func TestFewNamesSomeAndCountsTheRest(t *testing.T) {
	ids := []salt.MinionID{"web3", "web1", "web2"}
	for most, want := range map[int]string{3: "web1, web2, web3", 2: "web1, web2, and 1 more", 1: "web1, and 2 more"} {
		if got := few(append([]salt.MinionID{}, ids...), most); got != want {
			t.Errorf("few %d: %q, want %q", most, got, want)
		}
	}
	if got := few(nil, 5); got != "" {
		t.Errorf("few of none: %q", got)
	}
}

// TestEachEndIsCountedOnce: a state that a minion can end with belongs to one of the groups
// of the summary, or is a success; none is in two.
func TestEachEndIsCountedOnce(t *testing.T) {
	for state, want := range map[job.State]string{
		job.Done: "", job.Failed: "failed", job.Killed: "failed", job.Refused: "failed", job.Expired: "failed",
		job.NotTargeted: "skipped", job.Cancelled: "cancelled", job.NotConnected: "missing", job.Disconnected: "missing", job.Silent: "missing",
	} {
		got := ""
		for name, is := range map[string]func(job.State) bool{"failed": failed, "skipped": skipped, "cancelled": cancelled, "missing": missing} {
			if is(state) {
				got += name
			}
		}
		if got != want {
			t.Errorf("%s is counted as %q, want %q", state, got, want)
		}
	}
}
