package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLockOfADeadProcess: what a daemon that was killed leaves locked for a moment
// does not keep its successor from starting.
func TestLockOfADeadProcess(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pid int
		ok  bool
	}{"dead": {gone.Process.Pid, true}, "alive": {os.Getpid(), false}, "unknown": {0, false}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
			if err == nil {
				_, err = fmt.Fprint(f, test.pid)
			}
			if err == nil {
				err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			}
			if err != nil {
				t.Fatal(err)
			}
			if test.ok {
				go f.Close() // some time later
			} else {
				defer f.Close()
			}
			release, err := Lock(dir)
			if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrRunning) {
				t.Errorf("got %v, want locked: %t", err, test.ok)
			}
			if err == nil {
				release()
			}
		})
	}
}
