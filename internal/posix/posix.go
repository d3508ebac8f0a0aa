// Package posix holds what Brine asks of POSIX, in one form for Linux, macOS and Windows:
// owners and locks of files, signals, users of processes. What a system does not have
// fails with an error that says so and wraps errors.ErrUnsupported. It decides nothing;
// what a process may do is for its callers and for the system.
package posix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// Stat is what the system knows of a file beyond its fs.FileInfo. Times are nanoseconds
// since 1970.
type Stat struct {
	Device, Inode, Links      uint64
	UID, GID, Mode            uint32
	Access, Modified, Changed int64
}

// FileSystem is what statfs tells of the file system at a path.
type FileSystem struct {
	BlockSize               uint64
	Blocks, Free, Available uint64 // in blocks; Available is what others than root may use
	Files, FreeFiles        uint64
}

// System is what uname tells.
type System struct{ Sysname, Nodename, Release, Version, Machine string }

// Credential is the user that a program runs as.
type Credential struct {
	UID, GID uint32
	Groups   []uint32
}

// How a file is locked.
type LockMode int

const (
	Shared LockMode = iota
	Exclusive
)

// ErrLocked is returned by TryLock while somebody else has the lock.
var ErrLocked = errors.New("it is locked")

// What Access asks for.
const (
	MayExecute = 1
	MayWrite   = 2
	MayRead    = 4
)

// Unsupported is the error of a function for what this system does not have.
func Unsupported(what string) error {
	return &unsupported{what}
}

type unsupported struct{ what string }

func (u *unsupported) Error() string { return fmt.Sprintf("%s is not to be had on %s", u.what, name()) }

func (u *unsupported) Unwrap() error { return errors.ErrUnsupported }

// name is what people call the system.
func name() string {
	switch runtime.GOOS {
	case "darwin":
		return "macOS"
	case "windows":
		return "Windows"
	}
	return runtime.GOOS
}

// Owner says in the terms of POSIX whose the file at path is, which info describes, and what
// who may do with it: also on Windows, which has access lists instead of bits.
// There 0 is the system and its administrators, and os.Geteuid() this process's user.
func Owner(path string, info fs.FileInfo) (uid int, mode fs.FileMode, err error) {
	return owner(path, info)
}

// Lock waits for the lock on a file. It ends with the file, or with the process.
func Lock(f *os.File, how LockMode) error { return lock(f, how, true) }

// TryLock takes the lock on a file or fails at once, with ErrLocked if another has it.
func TryLock(f *os.File, how LockMode) error { return lock(f, how, false) }
