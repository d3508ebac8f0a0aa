package chaos

import (
	"os"
	"path/filepath"
	"testing"
)

// TestACutLosesWhatWasNotSynced: else the power cuts would show nothing.
func TestACutLosesWhatWasNotSynced(t *testing.T) {
	d, err := newDisk(filepath.Join(t.TempDir(), "disk"), true)
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
