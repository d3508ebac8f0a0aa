package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/brinebus/brine/test/watchdog"
)

// diskSize is enough for what 200 rounds store, some of it in a journal of journalSize; an image takes only what is used of it.
const (
	diskSize    = 4 << 30
	journalSize = 3 << 30
)

// disk is a filesystem of a daemon's own, in an image on a loop device. Without the right to
// mount one it is a directory.
type disk struct {
	image   string
	dir     string
	real    bool
	options string // with which it is mounted
}

// diskDir returns a directory for disks, which are gone when the test is over, whatever ended it.
func diskDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	watchdog.Start(t, remains, bin, dir)
	if err := shareMounts(dir); err != nil {
		t.Skipf("no disk here: %v", err)
	}
	t.Cleanup(func() { unmount(dir) })
	return dir
}

// shareMounts makes what is unmounted below the directory so also for programs that have a mount namespace of their
// own, such as those of a host: these would keep a disk as it was before its power was cut, and its device busy.
func shareMounts(dir string) error {
	return errors.Join(run("mount", "--bind", dir, dir), run("mount", "--make-shared", dir))
}

// unmount waits for programs that have something open below the directory. Those that do not end keep it, but nobody
// else sees it any more.
func unmount(dir string) {
	for end := time.Now().Add(holdTime); syscall.Unmount(dir, 0) == syscall.EBUSY; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
			return
		}
	}
}

// newDisk makes a disk and mounts it, if it may.
func newDisk(dir string, mayMount bool) (*disk, error) {
	d := &disk{image: dir + ".image", dir: dir, real: mayMount, options: "loop,commit=300,errors=remount-ro"}
	if err := os.MkdirAll(dir, 0o755); err != nil || !mayMount {
		return d, err
	}
	if err := errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, diskSize)); err != nil {
		return nil, err
	}
	if err := run("mkfs.ext4", "-q", "-m", "0", d.image); err != nil {
		return nil, err
	}
	return d, d.mount()
}

// mount leaves the moment of each write to the daemon: the filesystem itself writes nothing
// that was not synced for five minutes, so that a power cut takes as much as it can.
func (d *disk) mount() error {
	return run("mount", "-o", d.options, d.image, d.dir)
}

// forbid makes the disk read-only under its users, as the kernel does when it finds an error.
func (d *disk) forbid() error {
	name, err := d.device()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("/sys/fs/ext4", name, "trigger_fs_error"), []byte("1"), 0)
}

// device returns the name of the loop device below the filesystem.
func (d *disk) device() (string, error) {
	device, err := exec.Command("findmnt", "-n", "-o", "SOURCE", d.dir).Output()
	if err != nil {
		return "", fmt.Errorf("findmnt %s: %w", d.dir, err)
	}
	return filepath.Base(strings.TrimSpace(string(device))), nil
}

func (d *disk) remove() {
	if d.real {
		unmount(d.dir)
	}
}

// shutdown is EXT4_IOC_SHUTDOWN, and noFlush its EXT4_GOING_FLAGS_NOLOGFLUSH.
const (
	shutdown = 0x8004587d
	noFlush  = 2
)

// cut takes the power from the disk and gives it back. Nothing may use it any more.
func (d *disk) cut() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	how := uint32(noFlush)
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&how)))
	if err := f.Close(); e != 0 {
		return errors.Join(fmt.Errorf("shut %s down: %w", d.dir, e), err)
	}
	return d.again()
}

// again mounts the disk again. Another program of the machine may hold it as it was for a
// while: one that has just made a namespace of its own, say. Then the device stays, and a new
// mount would show the filesystem that was shut down.
func (d *disk) again() error {
	for end := time.Now().Add(holdTime); ; time.Sleep(50 * time.Millisecond) {
		err := syscall.Unmount(d.dir, 0)
		if err == syscall.EINVAL { // it is unmounted since the last attempt
			err = nil
		}
		if err == nil && d.held() {
			err = syscall.EBUSY
		}
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("another program of this machine holds %s as it was before the power cut: %w", d.dir, err)
		}
	}
	if err := d.mount(); err != nil {
		return err
	}
	probe := filepath.Join(d.dir, "probe")
	return errors.Join(os.WriteFile(probe, []byte("x"), 0o600), os.Remove(probe))
}

// held reports whether a loop device still has the image.
func (d *disk) held() bool {
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is a good one
	for _, name := range names {
		if b, _ := os.ReadFile(name); strings.TrimSuffix(string(b), "\n") == d.image { // it may be gone meanwhile
			return true
		}
	}
	return false
}

// holdTime is how long a disk may be held.
const holdTime = 20 * time.Second

// fill leaves no room on the disk.
func (d *disk) fill() error {
	f, err := os.Create(filepath.Join(d.dir, "fill"))
	if err != nil {
		return err
	}
	defer f.Close()
	for size := int64(16 << 20); size > 0; {
		at, err := f.Seek(0, 2)
		if err != nil {
			return err
		}
		if syscall.Fallocate(int(f.Fd()), 0, at, size) != nil {
			size /= 2
		}
	}
	return nil
}

func (d *disk) free() error { return os.Remove(filepath.Join(d.dir, "fill")) }

// damage changes one byte of one file that the pattern means, below the disk.
func (d *disk) damage(r *rand.Rand, pattern string) (string, error) {
	files, err := filepath.Glob(filepath.Join(d.dir, pattern))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("there is no %s", pattern)
	}
	name := files[r.IntN(len(files))]
	b, err := os.ReadFile(name)
	if err != nil || len(b) == 0 {
		return name, err
	}
	at := r.IntN(len(b))
	b[at] ^= byte(1 + r.IntN(255))
	return fmt.Sprintf("%s at %d of %d", name, at, len(b)), os.WriteFile(name, b, 0o600)
}

func run(words ...string) error {
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q: %w: %s", words, err, out)
	}
	return nil
}
