package structure

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRoom: scripts/room passes where enough is free, also for directories that are not there yet, and
// where it is not, says how much is and what to do.
func TestRoom(t *testing.T) {
	const all = "9000000" // gigabytes, which no disk has
	for _, c := range []struct {
		name  string
		need  []string
		full  bool
		tells string
	}{
		{"enough", []string{"0", "0"}, false, " GB free, 0 GB needed\n"},
		{"no room for files", []string{all, "0"}, true, " GB free, " + all + " GB needed\n"},
		{"no room for the build", []string{"0", all}, true, " GB free, " + all + " GB needed\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			missing := filepath.Join(t.TempDir(), "is", "not", "there")
			cmd := exec.Command("../../scripts/room", c.need...)
			cmd.Env = append(cmd.Environ(), "TMPDIR="+missing, "GOCACHE="+missing)
			var complaint strings.Builder
			cmd.Stderr = &complaint
			said, err := cmd.Output()
			if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if full := err != nil; full != c.full || !strings.Contains(string(said), c.tells) {
				t.Errorf("it says %q, %v; want %q, full %v", said, err, c.tells, c.full)
			}
			if hints := strings.Contains(complaint.String(), "go clean -cache"); hints != c.full {
				t.Errorf("it complains %q", complaint.String())
			}
		})
	}
}
