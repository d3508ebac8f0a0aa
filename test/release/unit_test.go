package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDaemonsStartWithANetwork: a member of a cluster finds itself by the addresses of the machine, and a
// start that fails at once, five times without a pause, is not tried again.
func TestDaemonsStartWithANetwork(t *testing.T) {
	units, err := filepath.Glob("../../packaging/systemd/*.service")
	if err != nil || len(units) < 4 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"After=network-online.target", "Wants=network-online.target", "RestartSec=5"} {
			if !strings.Contains(string(b), "\n"+line) {
				t.Errorf("%s has no line %s", unit, line)
			}
		}
	}
}
