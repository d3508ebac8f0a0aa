package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// A lock that is released is free, though a child that has not begun its program has the
// file still.
func TestALockIsReleasedOverAChild(t *testing.T) {
	dir := t.TempDir()
	release, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	dup := inherit(t, filepath.Join(dir, ".lock"))
	defer syscall.Close(dup)
	release()
	again, err := Lock(dir)
	if err != nil {
		t.Fatalf("who comes next has %v", err)
	}
	again()
}

// inherit copies the descriptor of an open file, as a child gets it.
func inherit(t *testing.T, path string) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to != path {
			continue
		}
		n, err := strconv.Atoi(fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		dup, err := syscall.Dup(n)
		if err != nil {
			t.Fatal(err)
		}
		return dup
	}
	t.Fatal("the file of the lock is not open")
	return -1
}
