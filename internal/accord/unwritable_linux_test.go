package accord

import (
	"github.com/brinebus/brine/internal/uptime"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/pki"
)

// TestAKeyDirectoryThatCannotBeWritten: a member that cannot carry out a deletion is not current, so
// it admits no minion, until it has carried it out.
func TestAKeyDirectoryThatCannotBeWritten(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	a.act(Accept, "web1", key)
	settled(a, b)
	writable := withoutWriting(t, filepath.Join(b.dir, "minions"))
	a.act(Delete, "web1", key)
	settled(a, b)
	b.is("web1", key, pki.Accepted)
	b.shared.inForce(moment{time.Now(), uptime.Now()})
	if !b.shared.Stale() {
		t.Error("it is current, although a deletion is not in force")
	}
	writable()
	settled(a, b)
	b.is("web1", key, pki.Unknown)
	b.shared.inForce(moment{time.Now(), uptime.Now()})
	if b.shared.Stale() {
		t.Error("it is not current, although everything is in force")
	}
}

// withoutWriting makes a directory that nobody can write, until the returned function is called: for
// root, who may write whatever the mode says, it is mounted again, read-only.
func withoutWriting(t *testing.T, dir string) (writable func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		return withMode(t, dir)
	}
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Skip("this needs another user than root, or the right to mount: ", err)
	}
	mounted := true
	writable = func() {
		if mounted {
			mounted = false
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(writable)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Skip("this needs the right to mount read-only: ", err)
	}
	return writable
}

func withMode(t *testing.T, dir string) (writable func()) {
	t.Helper()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	writable = func() {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(writable)
	return writable
}
