package eventbus

import (
	"context"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestATableIsOpenedWhole: who asks goes away, and the table is there: the server would have
// gone on with it, and where the daemon stops meanwhile have left its files open.
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
