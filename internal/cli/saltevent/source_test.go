package saltevent

import (
	"bytes"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
)

// A person is told that the journal ends before what was heard.
func TestAPositionAheadIsTold(t *testing.T) {
	var told bytes.Buffer
	s := &source{env: &cli.Env{Name: "salt-event", Stderr: &told}}
	s.warnAhead(97, 40)
	for _, want := range []string{"event 97", "ends with 40"} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("told is %q, want %q in it", told.String(), want)
		}
	}
}
