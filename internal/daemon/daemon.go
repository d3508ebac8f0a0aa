// Package daemon handles what every daemon needs from the system: one instance for each data
// directory, a pid file, notification of systemd, and little memory when idle.
//
// It does not fork: service managers expect their daemons in the foreground.
package daemon

import (
	"errors"
	"fmt"
	"io/fs"
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

// ErrRunning is wrapped if another instance holds the directory.
var ErrRunning = errors.New("another instance is running")

// Lock makes this process the only one that uses dir, which is created with mode 0700 if it is
// missing. The lock ends with release, or when the process ends in any way.
func Lock(dir string) (release func(), err error) {
	// The parent is not only for the daemon: below a root_dir it also has the sockets.
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
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0) // only for the error message above
	}
	return func() {
		_ = posix.Unlock(f) // a child that has not yet started its program has the file too
		f.Close()
	}, nil
}

// orphanGrace is how long to wait for the lock of a dead process.
const orphanGrace = 10 * time.Second

// flock takes the lock, or fails at once if its holder is alive. If the holder was killed while
// starting a program, a child still holds the lock until that program begins: on a busy machine
// this takes longer than a restart.
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

// Holder reports whether a daemon uses dir, and which process that is. It looks only: the lock is tried where the
// process named in it is alive, so that a daemon that starts at that moment waits for it, as for that of a dead one.
func Holder(dir string) (pid int, held bool, err error) {
	f, err := os.Open(filepath.Join(dir, ".lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	if pid = holderOf(f); pid == 0 || posix.Gone(pid) {
		return 0, false, nil
	}
	err = posix.TryLock(f, posix.Shared)
	if errors.Is(err, posix.ErrLocked) {
		return pid, true, nil
	}
	return 0, false, errors.Join(err, posix.Unlock(f))
}

// holderOf returns the process that has, or had, the lock; 0 if it is unknown.
func holderOf(f *os.File) int {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0) // an unreadable number counts as none
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

// MakeDir creates a missing directory with mode 0755, under any umask, since it may contain the
// sockets, which all users need.
func MakeDir(dir string) error { return atomicfile.MakeDir(dir, 0o755) }

// PIDFile writes the number of this process to path and creates its directory. remove deletes the
// file. An empty path writes nothing.
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

// Supervised reports whether this process is a service: systemd or Detach waits for its
// notification, or a systemd unit has started it. Then nobody sees how it ends, unlike a command in
// a terminal.
func Supervised() bool {
	if os.Getenv("NOTIFY_SOCKET") != "" {
		return true
	}
	// A shell on a desktop may run in the unit of its terminal.
	pid := os.Getenv("SYSTEMD_EXEC_PID")
	return os.Getenv("INVOCATION_ID") != "" && (pid == "" || pid == strconv.Itoa(os.Getpid()))
}

// Notify sends the state ("READY=1", "STOPPING=1", "RELOADING=1" ...) to systemd. Without systemd
// it does nothing. The protocol is that of sd_notify(3).
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
