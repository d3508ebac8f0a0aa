package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// startBytes is how many KiB each program may allocate before main, with Go 1.26: a tenth more
// than it does. Every command pays for it, whatever it does, and a daemon keeps most of it. If a
// module of others needs more, it must be worth it in each start of these programs.
var startBytes = map[string]int{
	"salt":          225,
	"salt-api":      255,
	"salt-call":     305,
	"salt-cp":       225,
	"salt-event":    540,
	"salt-key":      225,
	"salt-master":   1050,
	"salt-minion":   800,
	"salt-pam":      30,
	"salt-returner": 110,
	"salt-run":      230,
	"salt-template": 160,
}

// TestStartDoesLittle counts what is allocated, and so does not depend on the machine.
func TestStartDoesLittle(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates, too")
	}
	programs, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
	initialised := regexp.MustCompile(`(?m)^init (\S+) .* (\d+) bytes,`)
	for _, p := range programs {
		if p.IsDir() { // programs that speak another protocol
			continue
		}
		var trace bytes.Buffer
		c := exec.Command(filepath.Join(bin, p.Name()), "--version")
		c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		c.Stderr = &trace
		if err := c.Run(); err != nil {
			t.Fatalf("%s: %v", p.Name(), err)
		}
		sum := 0
		for _, found := range initialised.FindAllStringSubmatch(trace.String(), -1) {
			n, err := strconv.Atoi(found[2])
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if most := startBytes[p.Name()] << 10; sum == 0 || sum > most {
			t.Errorf("%s allocates %d bytes before main, want at most %d:\n%s", p.Name(), sum, most, trace.String())
		}
	}
}
