package accord

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/test/capture"
)

// TestTheLogFitsMastersThatAreNoMembers: those whose journal is at servers of others share decisions, too, and
// are no cluster.
func TestTheLogFitsMastersThatAreNoMembers(t *testing.T) {
	t.Parallel()
	said := new(capture.Buffer)
	log := slog.New(slog.NewTextHandler(said, nil))
	h := &heartbeats{log: log, stale: time.Hour, current: time.Now()}
	h.check()
	h.current = time.Now().Add(-2 * time.Hour)
	h.check()
	if text := said.String() + notInForce; strings.Contains(text, "member") || strings.Count(text, "this master ") != 2 {
		t.Errorf("it logs:\n%s", text)
	}
}
