package dispatch

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
)

// synced records for which streams of a store somebody has waited.
type synced struct {
	journal.Store
	streams []string
}

func (s *synced) Sync(stream string) error {
	s.streams = append(s.streams, stream)
	return s.Store.Sync(stream)
}

// With journal_sync always, the plan of a plain job is on the disk before its start is: after a
// power cut between the two there would otherwise be a job that is known, but never continued.
func TestPlansSurviveWhatJobsSurvive(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{
		Name: "test", StoreDir: t.TempDir(), Sync: broker.SyncAlways, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Admit: func(broker.Peer) bus.Identity { return bus.Identity{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	disk := &synced{Store: b.Store()}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	d, err := Open(t.Context(), Options{Journal: j})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.storePlan(t.Context(), &plan{Start: job.Start{JID: "20260101000000000001"}, Began: time.Now()}, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(disk.streams, "KV_"+plansTable) {
		t.Errorf("synced are %v", disk.streams)
	}
}
