package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// stopTime is what a daemon gets to end whose disk cannot be written: it waits for nothing
// that cannot come any more.
const stopTime = 10 * time.Second

// TestStopsOnAReadOnlyDisk makes the disk of each daemon read-only under it, while the other
// side is connected and events come, and ends it by SIGTERM.
func TestStopsOnAReadOnlyDisk(t *testing.T) {
	w := newWorld(t, 1)
	if !w.disks {
		t.Skip("no disks of their own here")
	}
	for i, m := range []*machine{w.minions[0], w.master} {
		t.Run(m.name, func(t *testing.T) {
			r := newRound(w, i+1, nil)
			stop := make(chan struct{})
			working := r.work(stop)
			defer working.Wait()
			defer close(stop)
			untilTheEnd := fmt.Sprintf("while [ -d '%s' ]; do sleep 0.2; done", t.TempDir()) // it outlives its minion, but not the test
			if res := w.master.tool("", "salt", "-L", "web1,web2", "--async", "cmd.run", untilTheEnd); res.code != 0 {
				t.Fatal(res.err)
			}
			if err := m.disk.forbid(); err != nil {
				t.Skipf("the disk stays writable: %v", err)
			}
			args := []string{"fire", "--bus", w.bus(m), "--stdin", "-t", "3s"}
			if res := m.tool("{\"tag\":\"chaos/none\"}\n", "salt-event", args...); res.code == 0 {
				t.Errorf("an event is stored on a disk that cannot be written")
			}
			if !m.running() {
				t.Fatalf("%s has ended by itself\n%s", m.name, m.said())
			}
			begun := time.Now()
			if err := m.end(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			took := time.Since(begun)
			t.Logf("%s ended after %s", m.name, took.Round(time.Millisecond))
			if took > stopTime {
				t.Errorf("%s took %s to end\n%s", m.name, took, m.said())
			}
		})
	}
}
