package eventbus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
	"github.com/brinebus/brine/test/deadline"
)

// TestATableIsOpenedWhole: the table is opened even if the caller has gone: the server would go
// on creating it, and if the daemon stopped meanwhile, would leave its files open.
func TestATableIsOpenedWhole(t *testing.T) {
	j, err := journal.Open(t.Context(), bustest.StartStore(t).Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(j, 1<<20, bustest.Log(t)).tables.get(gone, "self"); err != nil {
		t.Error(err)
	}
}

// TestNobodyWaitsForTheTablesOfOthers: while the store does not answer whoever opens a table, a table
// that is open is there for everybody, who goes away does not wait, and all who wait for the same
// table hear the outcome together, and not one after the other.
func TestNobodyWaitsForTheTablesOfOthers(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	tables := New(clustertest.Journal(t, s.Members[0]), 1<<20, bustest.Log(t)).tables
	if _, err := tables.get(clustertest.Starting(t), "dead"); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Members[1:] {
		m.Kill(t)
	}
	begun := time.Now()
	const users = 4
	failed := make(chan error, users)
	for range users {
		go func() {
			_, err := tables.get(t.Context(), "positions")
			failed <- err
		}()
	}
	bustest.Until(t, "the table is being opened", func() bool {
		tables.mu.Lock()
		defer tables.mu.Unlock()
		return tables.open["positions"] != nil
	})
	if _, err := tables.get(t.Context(), "dead"); err != nil {
		t.Error(err)
	}
	leaving, leave := context.WithCancel(t.Context())
	leave()
	if _, err := tables.get(leaving, "positions"); !errors.Is(err, context.Canceled) {
		t.Errorf("who has gone hears %v", err)
	}
	if len(failed) > 0 {
		t.Fatal("the table is opened, or not, before the others were there: ", <-failed)
	}
	for range users {
		if err := deadline.Receive(t, failed, "an answer about the table"); err == nil {
			t.Error("the table was opened without most members")
		}
	}
	if took := time.Since(begun); took > 2*openTime {
		t.Errorf("the last of them had its answer after %s", took)
	}
}
