package master_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/salt"
)

// TestNoServersAreConfiguredWithoutAny: a single master would get a secret, and a configuration that is of no use.
func TestNoServersAreConfiguredWithoutAny(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	text, err := master.ServerConfig(cfg, func(string) {})
	if text != "" || !errors.Is(err, config.ErrMistake) || !strings.Contains(salt.Hint(err), "nats_servers") {
		t.Errorf("%q: %v, hint %q", text, err, salt.Hint(err))
	}
	if _, err := os.Stat(cfg.NATSSeed()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a secret: %v", err)
	}
}
