package accord

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/uptime"
	"github.com/brinebus/brine/test/capture"
)

// TestTheLogFitsMastersThatAreNoMembers: those whose journal is at servers of others share decisions, too, and
// are no cluster.
func TestTheLogFitsMastersThatAreNoMembers(t *testing.T) {
	t.Parallel()
	said := new(capture.Buffer)
	log := slog.New(slog.NewTextHandler(said, nil))
	now := uptime.Now()
	h := &heartbeats{log: log, stale: time.Hour, up: func() uptime.Moment { return now }, current: moment{time.Now(), now}}
	h.check()
	now = now.Add(2 * time.Hour)
	h.check()
	if text := said.String() + notInForce; strings.Contains(text, "member") || strings.Count(text, "this master ") != 2 {
		t.Errorf("it logs:\n%s", text)
	}
}

// storing keeps what is stored last.
type storing struct {
	SharedTable
	value []byte
}

func (s *storing) Put(_ context.Context, _ string, value []byte) error {
	s.value = value
	return nil
}

// TestASuspendedMachineIsNotCurrent: while a machine is suspended, package time's clock stands still, and others decide. It is
// current again when a heartbeat that was sent after that is in force, and not by one that was sent before.
func TestASuspendedMachineIsNotCurrent(t *testing.T) {
	t.Parallel()
	up := uptime.Moment(time.Hour)
	table := &storing{}
	h := &heartbeats{log: slog.New(slog.DiscardHandler), table: table, stale: staleAfter, up: func() uptime.Moment { return up }}
	is := func() bool { is, _ := h.isCurrent(); return is }
	beat := func() { h.send(t.Context(), time.Now()) }
	arrive := func() { h.hear(table.value); h.inForce(h.back()) }
	beat()
	arrive()
	if !is() {
		t.Fatal("it is not current at first")
	}
	beat()
	up = up.Add(staleAfter + time.Second)
	if is() {
		t.Error("it is current after it was suspended")
	}
	arrive()
	if is() {
		t.Error("it is current by a heartbeat that was sent before it was suspended")
	}
	beat()
	arrive()
	if !is() {
		t.Error("it does not become current again")
	}
}
