package fleet

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/salt"
)

// nobodysJobs are those of a master that has none.
type nobodysJobs struct{ lost int }

func (*nobodysJobs) Awaited(salt.MinionID) []salt.JID { return nil }
func (*nobodysJobs) Back(salt.MinionID, string)       {}
func (j *nobodysJobs) Lost(salt.MinionID)             { j.lost++ }

// A minion may connect as often as it likes without storing or logging more. Its jobs are informed
// of each lost connection all the same.
func TestReconnectsAreRateLimited(t *testing.T) {
	var said bytes.Buffer
	jobs := &nobodysJobs{}
	a := &Arrivals{Fleet: &Fleet{Options: Options{Keys: noKeys{}}, Presence: newPresence()}, Jobs: jobs, Log: slog.New(slog.NewTextHandler(&said, nil))}
	defer a.Fleet.announces()()
	const times = 1000
	i := bus.Identity{Role: bus.RoleMinion, Name: "web1", Nonce: "n"}
	for range times {
		a.Fleet.Join("web1", i.Inbox(), false)
		a.Gone(i)
	}
	a.Fleet.Join("db1", "another", false)
	if n := strings.Count(said.String(), "minion disconnected"); n != maxLines {
		t.Errorf("%d lines that a minion has gone, want %d", n, maxLines)
	}
	if jobs.lost != times {
		t.Errorf("jobs were told %d times of %d", jobs.lost, times)
	}
	joined, left := a.Fleet.changes()
	if !slices.Equal(joined, []salt.MinionID{"db1", "web1"}) || !slices.Equal(left, []salt.MinionID{"web1"}) {
		t.Errorf("%d have come and %d have gone, want two and one", len(joined), len(left))
	}
	if joined, left = a.Fleet.changes(); len(joined)+len(left) > 0 {
		t.Errorf("later %q have come and %q have gone", joined, left)
	}
}
