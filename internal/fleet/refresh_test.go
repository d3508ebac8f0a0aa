package fleet_test

import (
	"log/slog"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/fleet"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// A minion may send its grains as often as it likes: the events about that count for its own share of
// the journal, as those that it fires itself.
func TestARefreshCountsForItsMinion(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	f, err := fleet.Open(t.Context(), fleet.Options{Journal: j, Keys: keys{}, Log: b.Log, Events: eventbus.New(j, 0, slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	const times = 20
	for range times {
		r := &rpc.Request{From: bus.Identity{Role: bus.RoleMinion, Name: "web1"}, Body: []byte(`{"grains":{"os":"Debian"}}`)}
		if err := f.Refresh(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if taken := j.Taken(); taken["minion"] != times || taken["daemon"] != 0 {
		t.Errorf("of %d events about new grains the journal counts %v", times, taken)
	}
}
