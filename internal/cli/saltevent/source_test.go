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

// A person is told of a journal that is not mirrored any more.
func TestAJournalThatIsGoneIsReported(t *testing.T) {
	var reported bytes.Buffer
	s := &source{env: &cli.Env{Name: "salt-event", Stderr: &reported}}
	s.warnGone(nil)
	if reported.Len() > 0 {
		t.Errorf("told is %q without a reason", reported.String())
	}
	s.warnGone([]string{"m2-0b"})
	if want := `journal "m2-0b" is not mirrored here any more`; !strings.Contains(reported.String(), want) {
		t.Errorf("told is %q, want %q in it", reported.String(), want)
	}
}
