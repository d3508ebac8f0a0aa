package posix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Flags of os.OpenFile that not every system has.
const (
	NoFollow  = 0
	NoWaiting = 0
)

// OpenFilesMove says whether a file may be renamed and removed while it is open.
const OpenFilesMove = false

func writeNow(syscall.Conn, []byte) (int, error) {
	return 0, fmt.Errorf("write without waiting: %w", errors.ErrUnsupported)
}

// somebody is the user number of everyone except administrators and this process's user.
const somebody = 65534

// owner reads the access list: what it allows to users other than the owner, the system and
// administrators becomes the mode bits of others.
func owner(path string, info fs.FileInfo) (uid int, mode fs.FileMode, err error) {
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return somebody, 0, fmt.Errorf("read the owner of %s: %w", path, err)
	}
	sid, _, err := sd.Owner()
	if err != nil {
		return somebody, 0, fmt.Errorf("read the owner of %s: %w", path, err)
	}
	self, err := thisUser()
	if err != nil {
		return somebody, 0, err
	}
	dacl, _, err := sd.DACL()
	if err != nil { // no list allows everything to everybody
		return number(sid, self), info.Mode() | 0o077, nil
	}
	others, err := othersMay(dacl, self)
	if err != nil {
		return somebody, 0, fmt.Errorf("read the access list of %s: %w", path, err)
	}
	return number(sid, self), info.Mode()&^0o077 | others, nil
}

func thisUser() (*windows.SID, error) {
	u, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("find out the user of this process: %w", err)
	}
	return u.User.Sid, nil
}

// number returns the user number for an owner.
func number(sid, self *windows.SID) int {
	switch {
	case sid.Equals(self):
		return os.Geteuid()
	case trusted(sid):
		return 0
	}
	return somebody
}

// trusted reports whether sid is the system or its administrators, who can do anything.
func trusted(sid *windows.SID) bool {
	return sid.IsWellKnown(windows.WinLocalSystemSid) || sid.IsWellKnown(windows.WinBuiltinAdministratorsSid) ||
		sid.IsWellKnown(windows.WinCreatorOwnerSid) || sid.String() == trustedInstaller
}

// trustedInstaller is the service that owns the files of the system.
const trustedInstaller = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"

// The rights in an entry of an access list that allow a user to read, or to change.
const (
	readRights  = windows.FILE_READ_DATA | windows.GENERIC_READ | windows.GENERIC_ALL
	writeRights = windows.FILE_WRITE_DATA | windows.FILE_APPEND_DATA | windows.FILE_WRITE_EA | windows.FILE_WRITE_ATTRIBUTES |
		windows.DELETE | windows.WRITE_DAC | windows.WRITE_OWNER | windows.GENERIC_WRITE | windows.GENERIC_ALL | fileDeleteChild
	fileDeleteChild = 0x40
)

// othersMay returns what the entries allow to users that are neither trusted nor self. Deny entries
// are ignored: they only remove rights.
func othersMay(dacl *windows.ACL, self *windows.SID) (mode fs.FileMode, err error) {
	for i := range uint32(dacl.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(dacl, i, &ace); err != nil {
			return 0, err
		}
		switch ace.Header.AceType {
		case windows.ACCESS_DENIED_ACE_TYPE:
			continue
		case windows.ACCESS_ALLOWED_ACE_TYPE:
		default:
			return 0o077, nil // an entry of another type may allow anything
		}
		sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart))
		if ace.Header.AceFlags&windows.INHERIT_ONLY_ACE != 0 || sid.Equals(self) || trusted(sid) {
			continue
		}
		if ace.Mask&readRights != 0 {
			mode |= 0o044
		}
		if ace.Mask&writeRights != 0 {
			mode |= 0o022
		}
	}
	return mode, nil
}

// Protect restricts a file or a directory, and its future content, to the system, its
// administrators and the user of this process.
func Protect(path string) error {
	self, err := thisUser()
	if err != nil {
		return err
	}
	sd, err := windows.SecurityDescriptorFromString("D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;" + self.String() + ")")
	if err != nil {
		return err
	}
	dacl, _, err := sd.DACL()
	if err != nil {
		return err
	}
	err = windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, dacl, nil)
	if err != nil {
		return fmt.Errorf("close %s to others: %w", path, err)
	}
	return nil
}

// StatOf fails: Windows does not have these numbers.
func StatOf(info fs.FileInfo) (Stat, error) {
	return Stat{}, Unsupported("the number of the owner of " + info.Name())
}

// StatFS describes the volume at a path, in bytes.
func StatFS(path string) (FileSystem, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return FileSystem{}, err
	}
	s := FileSystem{BlockSize: 1}
	if err := windows.GetDiskFreeSpaceEx(name, &s.Available, &s.Blocks, &s.Free); err != nil {
		return FileSystem{}, &os.PathError{Op: "size", Path: path, Err: err}
	}
	return s, nil
}

// OpenLock opens the file to lock for a directory: a file in it, since a directory cannot be
// locked.
func OpenLock(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
}

// beyond is the position of the locked byte: the content of the file stays readable.
var beyond = windows.Overlapped{OffsetHigh: 1 << 30}

func lock(f *os.File, how LockMode, wait bool) error {
	flags := uint32(0)
	if how == Exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	if !wait {
		flags |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	at := beyond
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}

// Unlock releases the lock.
func Unlock(f *os.File) error {
	at := beyond
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
}

// OpenToSync opens a file for SyncData.
func OpenToSync(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }

// SyncData syncs an open file: Windows has no cheaper call.
func SyncData(f *os.File) error { return f.Sync() }

// AllocateMore fails, as Allocate does.
func AllocateMore(*os.File, int64) error { return Unsupported("room behind the end of a file") }

// Allocate fails: space for a file is allocated by writing it.
func Allocate(*os.File, int64) error { return Unsupported("room for a file before it is written") }

// Kill ends a process; signal may be any signal that ends one.
func Kill(pid int, signal syscall.Signal) error {
	switch signal {
	case syscall.SIGTERM, syscall.SIGKILL, syscall.SIGABRT, syscall.SIGINT, syscall.SIGQUIT:
	default:
		return Unsupported("the signal " + strconv.Itoa(int(signal)))
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer p.Release()
	return p.Kill()
}

// KillGroup ends a process and its children; signal 0 only checks that it exists.
func KillGroup(group int, signal syscall.Signal) error {
	if signal == 0 {
		if Gone(group) {
			return os.ErrProcessDone
		}
		return nil
	}
	return exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(group)).Run()
}

// Gone reports whether there is no such process.
func Gone(pid int) bool {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return NoProcess(err)
	}
	defer windows.CloseHandle(h)
	var code uint32
	const stillActive = 259
	return windows.GetExitCodeProcess(h, &code) == nil && code != stillActive
}

// NoProcess reports whether err is that of a missing process.
func NoProcess(err error) bool {
	return errors.Is(err, os.ErrProcessDone) || errors.Is(err, windows.ERROR_INVALID_PARAMETER)
}

// Group makes a program that is not yet started lead its own process group.
func Group(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// Session makes a program that is not yet started run without this program's console.
func Session(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

// RunAs fails for another user or root directory.
func RunAs(_ *exec.Cmd, user *Credential, root string) error {
	switch {
	case user != nil:
		return Unsupported("a program of another user")
	case root != "":
		return Unsupported("another root directory")
	}
	return nil
}

// Become fails.
func Become(int, int, []int) error { return Unsupported("another user for a process that runs") }

// Signalled returns 0: signals end no process.
func Signalled(*os.ProcessState) syscall.Signal { return 0 }

// SignalNumber returns the number of a signal such as SIGTERM, 0 for an unknown name.
func SignalNumber(name string) syscall.Signal {
	return map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL, "SIGABRT": syscall.SIGABRT, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT}[name]
}

// Access reports as an error if a path does not exist or a file is write-protected; the access list
// is only checked when the file is used.
func Access(path string, mode uint32) error {
	info, err := os.Stat(path)
	if err == nil && mode&MayWrite != 0 && info.Mode().Perm()&0o200 == 0 {
		err = &os.PathError{Op: "access", Path: path, Err: fs.ErrPermission}
	}
	return err
}

// Uname returns the name and version of the system.
func Uname() System {
	v := windows.RtlGetVersion()
	node, _ := os.Hostname() // "" if the machine has no name
	version := fmt.Sprintf("%d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
	return System{"Windows", node, version, version, machine()}
}

// machine returns the architecture as uname names it.
func machine() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
}

// OpenFiles returns how many files a process may have open: Windows has no practical limit.
func OpenFiles() (limit uint64, failed, err error) { return 1 << 16, nil, nil }

// SyncPath syncs a file to disk. Windows itself syncs the names in a directory.
func SyncPath(path string) error {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Restrict makes a file or directory inaccessible to others if its mode says so: see Protect.
func Restrict(path string, mode fs.FileMode) error {
	if mode&0o077 != 0 {
		return nil
	}
	return Protect(path)
}
