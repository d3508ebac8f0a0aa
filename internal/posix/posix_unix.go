//go:build unix

package posix

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Flags of os.OpenFile that not every system has.
const (
	NoFollow  = syscall.O_NOFOLLOW
	NoWaiting = syscall.O_NONBLOCK | syscall.O_NOCTTY // a FIFO without a writer would block
)

// OpenFilesMove says whether a file may be renamed and removed while it is open.
const OpenFilesMove = true

func owner(_ string, info fs.FileInfo) (uid int, mode fs.FileMode, err error) {
	s, err := StatOf(info)
	return int(s.UID), info.Mode(), err
}

func writeNow(c syscall.Conn, b []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var fault error
	err = raw.Write(func(fd uintptr) bool {
		for fault = syscall.EINTR; fault == syscall.EINTR; {
			n, fault = syscall.Write(int(fd), b)
		}
		return true
	})
	if fault == syscall.EAGAIN {
		fault = nil
	}
	return max(0, n), errors.Join(err, fault)
}

// OpenLock opens the file to lock for a directory: the directory itself, so that one user's lock
// file cannot block another user.
func OpenLock(dir string) (*os.File, error) { return os.Open(dir) }

func lock(f *os.File, how LockMode, wait bool) error {
	op := unix.LOCK_SH
	if how == Exclusive {
		op = unix.LOCK_EX
	}
	if !wait {
		op |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), op)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}

// Unlock releases the lock also for children that inherited the file.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// Kill sends a signal to a process.
func Kill(pid int, signal syscall.Signal) error { return syscall.Kill(pid, signal) }

// KillGroup sends a signal to each process of a group.
func KillGroup(group int, signal syscall.Signal) error { return syscall.Kill(-group, signal) }

// Gone reports whether there is no such process.
func Gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// NoProcess reports whether err is that of a signal to a missing process.
func NoProcess(err error) bool { return errors.Is(err, syscall.ESRCH) }

// Group makes a program that is not yet started lead its own process group.
func Group(c *exec.Cmd) { attributes(c).Setpgid = true }

// Session makes a program that is not yet started lead its own session.
func Session(c *exec.Cmd) {
	a := attributes(c)
	a.Setpgid, a.Setsid = false, true
}

// RunAs makes a program that is not yet started run as user, with root as its root directory unless
// that is empty.
func RunAs(c *exec.Cmd, user *Credential, root string) error {
	a := attributes(c)
	a.Chroot = root
	if user != nil {
		a.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: user.Groups}
	}
	return nil
}

func attributes(c *exec.Cmd) *syscall.SysProcAttr {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	return c.SysProcAttr
}

// Become changes the user of this process. It needs root, and cannot be undone.
func Become(uid, gid int, groups []int) error {
	if err := syscall.Setgroups(groups); err != nil {
		return &os.SyscallError{Syscall: "setgroups", Err: err}
	}
	if err := syscall.Setgid(gid); err != nil {
		return &os.SyscallError{Syscall: "setgid", Err: err}
	}
	if err := syscall.Setuid(uid); err != nil { // last: afterwards the process may not do the others
		return &os.SyscallError{Syscall: "setuid", Err: err}
	}
	became.Store(true)
	return nil
}

// Signalled returns the signal that ended a process, 0 for none.
func Signalled(s *os.ProcessState) syscall.Signal {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return w.Signal()
	}
	return 0
}

// SignalNumber returns the number of a signal such as SIGTERM, 0 for an unknown name.
func SignalNumber(name string) syscall.Signal { return unix.SignalNum(name) }

// Access asks the system whether the effective user of this process has the permissions in mode for
// a path: a sum of MayRead, MayWrite and MayExecute; 0 asks whether it exists.
func Access(path string, mode uint32) error {
	if err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "access", Path: path, Err: err}
	}
	return nil
}

// Uname returns the name and version of the system.
func Uname() System {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return System{} // it fails only for a bad address
	}
	s := func(b []byte) string { return unix.ByteSliceToString(b) }
	return System{s(u.Sysname[:]), s(u.Nodename[:]), s(u.Release[:]), s(u.Version[:]), s(u.Machine[:])}
}

// OpenFiles returns how many files this process may have open. It raises the limit as far as the
// process may; failed says why it could not.
func OpenFiles() (limit uint64, failed, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, nil, err
	}
	if r.Cur < r.Max {
		raised := syscall.Rlimit{Cur: r.Max, Max: r.Max}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil { // syscall.Setrlimit also informs the runtime
			return r.Cur, err, nil
		}
		r.Cur = r.Max
	}
	return r.Cur, nil, nil
}

// SyncPath syncs a file, or the names in a directory, to disk.
func SyncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Restrict does nothing: the mode of a file already defines who may use it.
func Restrict(string, fs.FileMode) error { return nil }
