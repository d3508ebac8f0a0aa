package client

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// TestUnready: a master that runs and has no socket yet is not said to be stopped.
func TestUnready(t *testing.T) {
	cfg := &config.Master{}
	cfg.CacheDir = t.TempDir()
	nobody := dialError(socket.ErrNobody, "/run/master.sock", MasterSocket)
	stopped := func(when string) {
		if got := unready(nobody, cfg); got.Error() != nobody.Error() || cli.Code(got) != cli.Unavailable || salt.Hint(got) != startIt("salt-master") {
			t.Errorf("%s: %v, hint %q", when, got, salt.Hint(got))
		}
	}
	stopped("no master runs")
	release, err := daemon.Lock(cfg.CacheDir)
	if err != nil {
		t.Fatal(err)
	}
	got := unready(nobody, cfg)
	if cli.Code(got) != cli.Unavailable || !NobodyListens(got) || !strings.Contains(got.Error(), "runs and is not ready") || strings.Contains(salt.Hint(got), "start salt-master") {
		t.Errorf("one waits: %v (hint %q)", got, salt.Hint(got))
	}
	release()
	stopped("it has ended")
	other := errors.New("it does not answer")
	if got := unready(other, cfg); got != other {
		t.Errorf("another error: %v", got)
	}
	if os.Geteuid() == 0 {
		return // root may enter every directory
	}
	if err := os.Chmod(cfg.CacheDir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(cfg.CacheDir, 0o700) })
	if got := unready(nobody, cfg); got != nobody {
		t.Errorf("who cannot see it: %v, hint %q", got, salt.Hint(got))
	}
}
