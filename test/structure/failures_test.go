package structure

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFailures: scripts/test runs once more only what scripts/failures names, which is
// each failed test by itself, and nothing where a race, a panic or a build is at fault.
func TestFailures(t *testing.T) {
	const passed = "ok  \tbrine/a\t1.0s\n?   \tbrine/b\t[no test files]\n"
	for _, c := range []struct {
		name, output, want string
		refused            bool
	}{
		{"nothing", passed, "", false},
		{"a test", passed + "--- FAIL: TestX (1s)\n    x_test.go:1: no\nFAIL\nFAIL\tbrine/c\t3s\n" + passed, "brine/c\t^TestX$\n", false},
		{
			"subtests", "--- FAIL: TestX (1s)\n--- FAIL: TestS (3s)\n    --- FAIL: TestS/a.b (1s)\n        --- FAIL: TestS/a.b/deep (1s)\n    --- FAIL: TestS/c+d (1s)\nFAIL\nFAIL\tbrine/c\t3s\n",
			"brine/c\t^TestX$\nbrine/c\t^TestS$/^a\\.b$\nbrine/c\t^TestS$/^c\\+d$\n", false,
		},
		{"two packages", "--- FAIL: TestX (1s)\nFAIL\tbrine/c\t3s\nok  \tbrine/d\t1s\n--- FAIL: TestY (1s)\nFAIL\tbrine/e\t3s\n", "brine/c\t^TestX$\nbrine/e\t^TestY$\n", false},
		{"race", "        WARNING: DATA RACE\n--- FAIL: TestX (1s)\nFAIL\tbrine/c\t3s\n", "brine/c\t^TestX$\n", true},
		{"race elsewhere that passed", "WARNING: DATA RACE\nok  \tbrine/d\t1s\n--- FAIL: TestX (1s)\nFAIL\tbrine/c\t3s\n", "brine/c\t^TestX$\n", false},
		{"panic", "--- FAIL: TestX (1s)\npanic: test timed out after 25m0s\nFAIL\tbrine/c\t3s\n", "brine/c\t^TestX$\n", true},
		{"build", "FAIL\tbrine/c [build failed]\n", "", true},
		{"race, then a plain failure", "WARNING: DATA RACE\n--- FAIL: TestX (1s)\nFAIL\tbrine/c\t3s\n--- FAIL: TestY (1s)\nFAIL\tbrine/d\t3s\n", "brine/c\t^TestX$\nbrine/d\t^TestY$\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "output")
			if err := os.WriteFile(file, []byte(c.output), 0o600); err != nil {
				t.Fatal(err)
			}
			var complaint strings.Builder
			cmd := exec.Command("../../scripts/failures", file)
			cmd.Stderr = &complaint
			got, err := cmd.Output()
			if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if string(got) != c.want || (err != nil) != c.refused || (complaint.Len() > 0) != c.refused {
				t.Errorf("got %q, %v, %s; want %q, refused %v", got, err, complaint.String(), c.want, c.refused)
			}
		})
	}
}
