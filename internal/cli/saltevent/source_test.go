package saltevent

import (
	"bytes"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/protocol"
)

// A person is told that the journal ends before what was heard, and the listener goes on
// from where the daemon has begun.
func TestAPositionAheadIsTold(t *testing.T) {
	var told bytes.Buffer
	s := &source{env: &cli.Env{Name: "salt-event", Stderr: &told}, onReady: func(protocol.Ready) error { return nil }, seq: 97}
	if err := s.begun(protocol.Ready{Ready: true, Start: 1, Last: 40, Ahead: 97}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"event 97", "ends with 40"} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("told is %q, want %q in it", told.String(), want)
		}
	}
	if s.seq != 0 {
		t.Errorf("it goes on behind %d", s.seq)
	}
}
