// Package daemon is what a daemon owes the system around it: one instance for
// each data folder, a pid file, word to systemd that it is ready, and the memory that it
// does not need.
//
// It does not fork: service managers want their daemons in the foreground.
package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// ErrRunning is wrapped when another instance holds the folder.
var ErrRunning = errors.New("another instance is running")

// Lock makes this process the only one of its kind on dir, which is made, 0700,
// when missing. The lock ends with release, or with the process however it ends.
func Lock(dir string) (release func(), err error) {
	// What is above is not the daemon's alone: below a root_dir its sockets are, too.
	if err := errors.Join(MakeDir(filepath.Dir(dir)), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ".lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		holder := holderOf(f)
		f.Close()
		if !errors.Is(err, posix.ErrLocked) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, salt.WithHint(fmt.Errorf("%w on %s%s", ErrRunning, dir, pidText(holder)),
			"stop it first, or give this one a root_dir of its own")
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0) // only for the words above
	}
	return func() {
		_ = posix.Unlock(f) // a child that is about to begin its program has the file, too
		f.Close()
	}, nil
}

// orphanGrace is how long the lock of a process that is dead is waited for.
const orphanGrace = 10 * time.Second

// flock takes the lock, or fails at once while the process that has it lives. One
// that was killed as it started a program has a child that holds the lock until
// that program begins: on a busy machine longer than a restart takes.
func flock(f *os.File) error {
	for deadline := time.Now().Add(orphanGrace); ; time.Sleep(10 * time.Millisecond) {
		err := posix.TryLock(f, posix.Exclusive)
		if !errors.Is(err, posix.ErrLocked) || time.Now().After(deadline) {
			return err
		}
		if pid := holderOf(f); pid == 0 || !posix.Gone(pid) {
			return err
		}
	}
}

// holderOf is the process that has, or had, the lock; 0 if it is not known.
func holderOf(f *os.File) int {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0) // an unreadable number is none
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

func pidText(pid int) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// MakeDir makes a directory where there is none: 0755, under any umask, since the
// way to the sockets, which are for all, may lead through it.
func MakeDir(dir string) error { return atomicfile.MakeDir(dir, 0o755) }

// PIDFile writes the number of this process to path, making its folder, and
// returns how to remove it. An empty path writes nothing.
func PIDFile(path string) (remove func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	if err := MakeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return nil, err
	}
	return func() { os.Remove(path) }, nil
}

// Supervised says whether this process is a service: somebody waits for its word that
// it is ready, systemd or Detach, or it is what a unit of systemd has started. Nobody
// then looks at its end as one does who has typed the command.
func Supervised() bool {
	if os.Getenv("NOTIFY_SOCKET") != "" {
		return true
	}
	// A shell in a desktop may have the unit of its terminal around it.
	pid := os.Getenv("SYSTEMD_EXEC_PID")
	return os.Getenv("INVOCATION_ID") != "" && (pid == "" || pid == strconv.Itoa(os.Getpid()))
}

// Notify tells systemd the state ("READY=1", "STOPPING=1", "RELOADING=1" ...).
// Without systemd it does nothing. The protocol is that of sd_notify(3).
func Notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	if name[0] == '@' {
		name = "\x00" + name[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	return nil
}
