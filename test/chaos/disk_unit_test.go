package chaos

import (
	"os"
	"path/filepath"
	"testing"
)

// TestACutLosesWhatWasNotSynced: else the power cuts would show nothing.
func TestACutLosesWhatWasNotSynced(t *testing.T) {
	d, err := newDisk(filepath.Join(diskDir(t), "disk"), true)
	if err != nil {
		t.Skipf("no disk here: %v", err)
	}
	defer d.remove()
	for name, synced := range map[string]bool{"synced": true, "written": false} {
		f, err := os.Create(filepath.Join(d.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("text"); err != nil {
			t.Fatal(err)
		}
		if synced {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
	}
	if err := d.cut(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(d.dir, "synced")); string(b) != "text" {
		t.Errorf("what was synced is %q, %v", b, err)
	}
	if b, _ := os.ReadFile(filepath.Join(d.dir, "written")); string(b) != "" {
		t.Errorf("what was not synced is there: %q", b)
	}
}

// TestAStarvedDiskSyncsNothing: else a test that uses one would blame a daemon for what its disk
// has dropped. The page with the end of the file has its room, those behind it have none.
func TestAStarvedDiskSyncsNothing(t *testing.T) {
	d, err := newThin(filepath.Join(diskDir(t), "disk"))
	if err != nil {
		t.Skipf("no disk here: %v", err)
	}
	defer d.remove()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(d.dir, "file"))
	must(err)
	defer f.Close()
	write := func(size int) {
		t.Helper()
		_, err := f.Write(make([]byte, size))
		must(err)
	}
	write(25*os.Getpagesize() + 100) // what comes behind so much is beside it on the disk
	must(f.Sync())
	must(d.starve())
	write(20 * os.Getpagesize())
	if err := f.Sync(); err == nil {
		t.Error("what there is no room for was synced")
	}
}
