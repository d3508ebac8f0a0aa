package structure

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestChaosOptions: scripts/chaos shows its own options and not those of go test, refuses what it does not have,
// and gives the rest to the test that -masters chooses.
func TestChaosOptions(t *testing.T) {
	dir := t.TempDir()
	fake := "#!/bin/sh\nprintf '<%s>' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{nil, 0, "<TestChaos$><-v><-timeout><10h><-rounds=50>", ""},
		{[]string{"-rounds", "3", "--masters=3", "--only", "power all"}, 0, "<TestCluster$><-v><-timeout><10h><-rounds=50><-rounds=3><-members=3><--only=power all>", ""},
		{[]string{"-masters", "5"}, 0, "<TestCluster$><-v><-timeout><10h><-rounds=50><-members=5>", ""},
		{[]string{"-h"}, 0, "\nUsage: scripts/chaos [", ""},
		{[]string{"-seed", "1", "--help"}, 0, "\nUsage: scripts/chaos [", ""},
		{[]string{"--round", "3"}, 64, "", "there is no option --round"},
		{[]string{"power"}, 64, "", "there is no option power"},
		{[]string{"-rounds"}, 64, "", "-rounds needs a value"},
		{[]string{"-seed="}, 64, "", "-seed needs a value"},
		{[]string{"-masters", "2"}, 64, "", "-masters is 1, 3 or 5"},
	} {
		cmd := exec.Command("../../scripts/chaos", c.args...)
		cmd.Env = append(cmd.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		stdout, err := cmd.Output()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(stdout), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("chaos %q ends with %d, %q and %q; want %d, %q and %q", c.args, code, stdout, stderr.String(), c.code, c.stdout, c.stderr)
		}
		if (len(stdout) == 0) != (c.code != 0) {
			t.Errorf("chaos %q: %q", c.args, stdout)
		}
	}
}
