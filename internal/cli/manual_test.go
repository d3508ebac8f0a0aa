package cli_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
)

// TestManual: --man prints the page of the golden file, whose words are those of -h, with
// the names that -h leaves out.
func TestManual(t *testing.T) {
	s := spec()
	s.Commands = []cli.Command{{Name: "look", Summary: `Look for C:\new. It is a command of its own.`}}
	s.Examples = append(s.Examples, ".hidden begins with a full stop", "'quoted' begins with a quote")
	w := newWorld("", "--man")
	if code := w.Run(t.Context(), s); code != cli.OK || w.err.Len() != 0 {
		t.Fatalf("code %d, stderr %q", code, w.err.String())
	}
	golden(t, "manual.1", w.out.Bytes())
	for _, name := range []string{`\-\-output`, `\-\-no\-colour`, `\fB\-c\fR \fIDIR\fR`} {
		if !strings.Contains(w.out.String(), name) {
			t.Errorf("the page does not name %s", name)
		}
	}
}

// TestManualIsValid asks a program for pages of the manual what it thinks of ours.
func TestManualIsValid(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed")
	}
	c := exec.Command(mandoc, "-T", "lint", "-W", "error")
	c.Stdin = strings.NewReader(cli.Manual("salt-try look", spec()))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
}
