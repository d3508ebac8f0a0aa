// Package posix has what Brine needs from POSIX, with one interface for Linux, macOS and Windows:
// owners and locks of files, signals, users of processes. If a system does not support something,
// the error says so and wraps errors.ErrUnsupported. The package decides nothing; its callers and
// the system decide what a process may do.
package posix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
)

// Stat has file metadata that fs.FileInfo lacks. Times are nanoseconds since 1970.
type Stat struct {
	Device, Inode, Links      uint64
	UID, GID, Mode            uint32
	Access, Modified, Changed int64
}

// FileSystem is the result of statfs for a path.
type FileSystem struct {
	BlockSize               uint64
	Blocks, Free, Available uint64 // in blocks; Available is what users other than root may use
	Files, FreeFiles        uint64
}

// System is the result of uname.
type System struct{ Sysname, Nodename, Release, Version, Machine string }

// Credential is the user that a program runs as.
type Credential struct {
	UID, GID uint32
	Groups   []uint32
}

// WriteNow writes to a connection as much as the system takes without waiting, and returns how much that was.
func WriteNow(c syscall.Conn, b []byte) (int, error) { return writeNow(c, b) }

// LockMode is the way a file is locked.
type LockMode int

const (
	Shared LockMode = iota
	Exclusive
)

// ErrLocked is returned by TryLock if another process has the lock.
var ErrLocked = errors.New("it is locked")

// Permissions for Access.
const (
	MayExecute = 1
	MayWrite   = 2
	MayRead    = 4
)

// Unsupported returns the error for a function that this system does not support.
func Unsupported(what string) error {
	return &unsupported{what}
}

type unsupported struct{ what string }

func (u *unsupported) Error() string { return fmt.Sprintf("%s is not supported on %s", u.what, name()) }

func (u *unsupported) Unwrap() error { return errors.ErrUnsupported }

// name returns the usual name of the system.
func name() string {
	switch runtime.GOOS {
	case "darwin":
		return "macOS"
	case "windows":
		return "Windows"
	}
	return runtime.GOOS
}

// Owner returns the owner of the file at path, which info describes, and its permissions, in the
// terms of POSIX, also on Windows, which has access lists instead of mode bits. There, 0 is the
// system and its administrators, and os.Geteuid() this process's user.
func Owner(path string, info fs.FileInfo) (uid int, mode fs.FileMode, err error) {
	return owner(path, info)
}

// Lock waits for the lock on a file. The lock ends when the file is closed or the process ends.
func Lock(f *os.File, how LockMode) error { return lock(f, how, true) }

// TryLock takes the lock on a file or fails at once, with ErrLocked if another process has it.
func TryLock(f *os.File, how LockMode) error { return lock(f, how, false) }
