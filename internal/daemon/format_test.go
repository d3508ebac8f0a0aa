package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

func TestFormat(t *testing.T) {
	for name, c := range map[string]struct {
		text    string // "" for no file
		refused bool
	}{
		"older than the numbers": {"", false},
		"ours":                   {"1 0.1.0\n", false},
		"newer":                  {"2 9.0.0\n", true},
		"damaged":                {"x\n", true},
		"half written":           {"1", true},
		"of no version":          {"0 0.0.1\n", true},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, formatFile)
		if c.text != "" {
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		release, err := Open(dir, "0.2.0")
		if (err != nil) != c.refused || c.refused && (!errors.Is(err, ErrNewer) || salt.Hint(err) == "") {
			t.Errorf("%s: %v", name, err)
		}
		text, readErr := os.ReadFile(path)
		files, listErr := os.ReadDir(dir)
		switch {
		case readErr != nil || listErr != nil:
			t.Errorf("%s: %v, %v", name, readErr, listErr)
		case c.refused && (string(text) != c.text || len(files) != 1):
			t.Errorf("%s: was touched: %q, %v", name, text, files)
		case !c.refused && string(text) != "1 0.2.0\n":
			t.Errorf("%s: marked %q", name, text)
		}
		if err == nil {
			release()
		}
	}
}
