package release

import (
	"os"
	"strings"
	"testing"
)

// TestTheMasterStartsWithANetwork: a member of a cluster finds itself by the addresses of the machine, and a
// start that fails at once, five times without a pause, is not tried again.
func TestTheMasterStartsWithANetwork(t *testing.T) {
	b, err := os.ReadFile("../../packaging/systemd/salt-master.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"After=network-online.target", "Wants=network-online.target", "RestartSec=5"} {
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("the unit has no line %s", line)
		}
	}
}
