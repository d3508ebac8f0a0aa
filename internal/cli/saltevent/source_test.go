package saltevent

import (
	"bytes"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
)

// A person is told that the journal ends before what was heard.
func TestAPositionAheadIsReported(t *testing.T) {
	var reported bytes.Buffer
	s := &source{env: &cli.Env{Name: "salt-event", Stderr: &reported}}
	s.warnAhead(97, 40)
	for _, want := range []string{"event 97", "ends with 40"} {
		if !strings.Contains(reported.String(), want) {
			t.Errorf("told is %q, want %q in it", reported.String(), want)
		}
	}
}
