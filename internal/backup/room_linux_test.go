package backup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestABackupDoesNotFillItsDisk: the store may be on the same disk. What would leave too little room is
// not begun.
func TestABackupDoesNotFillItsDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=68m"); err != nil {
		t.Skip("a disk of its own cannot be made here:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	b := bustest.StartStore(t)
	j := alone(t, b)
	fill(t, j, b, 10)
	write := func(name string) error {
		_, err := backup.Write(inTime(t), b.Conn(), backup.Options{Dir: filepath.Join(disk, name), Version: "1", Log: bustest.Log(t)})
		return err
	}
	if err := write("small"); err != nil {
		t.Fatal(err)
	}
	for n := range 60 {
		e := newEvent(t, "app/large", n)
		e.Data = []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
		if _, err := j.Append(inTime(t), e, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := write("large"); err == nil || salt.Hint(err) == "" {
		t.Errorf("a backup that leaves too little room: %v", err)
	}
	found, err := os.ReadDir(disk)
	if err != nil || len(found) != 1 || found[0].Name() != "small" {
		t.Errorf("the disk has %v, %v", found, err)
	}
}
