package upstream

import (
	"os"
	"path/filepath"
	"testing"
)

// Whatever the directory is called, what is pinned in it is pinned; and a directory that
// cannot be looked into is not a first contact.
func TestPinsOfOddDirectories(t *testing.T) {
	key := generate(t)
	dir := filepath.Join(t.TempDir(), "pki[1]")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "minion_master.a.pub"), key.Public().PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := loadPins(filepath.Join(dir, "minion_master.b.pub"))
	if err != nil || !p.has(key.Public()) || p.empty() {
		t.Errorf("the pins are %v, %v: the key of another master is forgotten", p, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := loadPins(filepath.Join(file, "minion_master.pub")); err == nil {
		t.Errorf("a directory that is none has the pins %v", p)
	}
}
