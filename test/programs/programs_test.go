package programs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestPut: what Built names is taken, all of it or by name, and what it does not have is told.
func TestPut(t *testing.T) {
	from := t.TempDir()
	for _, n := range []string{"salt", "salt-key"} {
		if err := os.WriteFile(filepath.Join(from, n), []byte(n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(Built, from)
	for _, names := range [][]string{nil, {"salt-key"}} {
		dir := t.TempDir()
		if err := Put(dir, names...); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadDir(dir)
		if want := max(1, 2-len(names)); err != nil || len(got) != want {
			t.Errorf("%v: %v %v, want %d", names, got, err, want)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "salt-key")); string(b) != "salt-key" || err != nil {
			t.Errorf("%q %v", b, err)
		}
	}
	if err := Put(t.TempDir(), "salt-other"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}
