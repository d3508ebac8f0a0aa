package eventbus

import (
	"context"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
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
