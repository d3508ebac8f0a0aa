package client

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// TestDenied: who is not let through is told where, and the exit code says so.
func TestDenied(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run", MasterSocket)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	err := dialError(fmt.Errorf("dial: %w", fs.ErrPermission), path, MasterSocket)
	if got, want := err.Error(), "connect to the daemon at "+path+": permission denied"; got != want {
		t.Errorf("the error is %q, want %q", got, want)
	}
	want := "the directories on the way to the socket must let you through (sock_dir); " + filepath.Dir(path) + " does not"
	if got := salt.Hint(err); got != want {
		t.Errorf("the hint is %q, want %q", got, want)
	}
	for name, tc := range map[string]struct {
		err  error
		code int
	}{
		"none":         {nil, cli.OK},
		"a mistake":    {fs.ErrInvalid, cli.Failed},
		"not there":    {fmt.Errorf("read configuration: %w", fs.ErrNotExist), cli.Usage},
		"not readable": {fmt.Errorf("read configuration: %w", fs.ErrPermission), cli.NoPermission},
	} {
		if got := cli.Code(configError(tc.err)); got != tc.code {
			t.Errorf("%s: exit code %d, want %d", name, got, tc.code)
		}
	}
}

// TestNobodyListens: a master that waits for another one runs, and has no socket yet. A minion never waits for that.
func TestNobodyListens(t *testing.T) {
	for name, waits := range map[string]bool{MasterSocket: true, MinionSocket: false} {
		hint := salt.Hint(dialError(fmt.Errorf("dial: %w", socket.ErrNobody), name, name))
		if !strings.Contains(hint, "with -c") || strings.Contains(hint, "wait for other masters") != waits {
			t.Errorf("%s: the hint is %q", name, hint)
		}
	}
}

// TestClosed: the closed directory is the highest one that cannot be entered.
func TestClosed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("skipped: root is let through everywhere")
	}
	dir := t.TempDir()
	shut := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(filepath.Join(shut, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shut, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(shut, 0o700) })
	if got := closed(filepath.Join(shut, "c", MasterSocket)); got != shut {
		t.Errorf("closed is %s, want %s", got, shut)
	}
}
