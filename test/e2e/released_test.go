package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/version"
)

// TestReleasedFolders keeps what each release has written: a folder for the number of
// this tree, and none that released.txtar does not start a system on.
func TestReleasedFolders(t *testing.T) {
	script, err := os.ReadFile("testdata/released.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/released/*.tgz")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, file := range files {
		name := filepath.Base(file)
		found = found || name == version.Release+".tgz"
		if !strings.Contains(string(script), "$RELEASED/"+name) {
			t.Errorf("released.txtar does not read %s", name)
		}
	}
	if !found {
		t.Errorf("testdata/released has no folders of %s: README.md says how to write them", version.Release)
	}
}
