package saltevent

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The size of the check.
const (
	reactedBatches = 24
	reactedBatch   = 20
)

// TestReactorMissesNothingOverKills fires numbered events at a program of the
// reactor while the master is killed at random moments. What was fired with exit
// code 0 must have been handled, and again only under the same name.
func TestReactorMissesNothingOverKills(t *testing.T) {
	dir := t.TempDir()
	out, program := filepath.Join(dir, "handled"), filepath.Join(dir, "react")
	script := "#!/bin/sh\nread -r line\necho \"$SALT_EVENT_ID $SALT_EVENT_SEQ $line\" >>" + out + "\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newSystem(t, "reactor:\n  - 'num/*':\n    - {run: "+program+", name: numbers, backoff: 10ms}\n")
	confirmed := map[int]bool{}
	for batch := range reactedBatches {
		if batch%3 == 2 {
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond) // any moment will do
			s.kill(syscall.SIGKILL)
			s.start()
		}
		s.fireNumbers(t, batch*reactedBatch, confirmed)
	}
	s.fireNumbers(t, reactedBatches*reactedBatch, confirmed)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		missing := unhandled(t, out, confirmed)
		if len(missing) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d events were not handled: %v", len(missing), len(confirmed), missing)
		}
	}
}

// fireNumbers fires a batch of numbered events.
func (s *system) fireNumbers(t *testing.T, first int, confirmed map[int]bool) {
	t.Helper()
	var in strings.Builder
	for n := first; n < first+reactedBatch; n++ {
		fmt.Fprintf(&in, "{\"n\":%d}\n", n)
	}
	cmd := s.event("fire", "num/x", "--stdin")
	cmd.Stdin = strings.NewReader(in.String())
	if cmd.Run() != nil {
		return // stored or not
	}
	for n := first; n < first+reactedBatch; n++ {
		confirmed[n] = true
	}
}

// unhandled returns the confirmed events that no line is about, and checks those
// that are there.
func unhandled(t *testing.T, path string, confirmed map[int]bool) (missing []int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		return []int{-1} // it is not there yet
	}
	defer f.Close()
	handled, ids := map[int]bool{}, map[string]int{}
	for in := bufio.NewScanner(f); in.Scan(); {
		var id string
		var seq, n int
		if _, err := fmt.Sscanf(in.Text(), "%s %d {\"n\":%d,", &id, &seq, &n); err != nil {
			t.Fatalf("%q: %v", in.Text(), err)
		}
		if first, again := ids[id]; again && first != n {
			t.Errorf("the events %d and %d have the same name", first, n)
		}
		handled[n], ids[id] = true, n
	}
	if len(ids) != len(handled) {
		t.Errorf("%d events have %d names", len(handled), len(ids))
	}
	for n := range confirmed {
		if !handled[n] {
			missing = append(missing, n)
		}
	}
	return missing
}
