package monitor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDumpsAreKeptInNumber(t *testing.T) {
	dir := filepath.Join(t.TempDir(), dumps)
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var last string
	for i := range keptDumps + 3 {
		var err error
		if last, err = dump(dir, now.Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != keptDumps || all[keptDumps-1].Name() != filepath.Base(last) {
		t.Errorf("%v, %v: want %d, the last of them %s", all, err, keptDumps, last)
	}
	text, err := os.ReadFile(last)
	if err != nil || !strings.Contains(string(text), "monitor.TestDumpsAreKeptInNumber") {
		t.Errorf("%v: this goroutine is not in %s", err, text)
	}
	info, err := os.Stat(last)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may read it", info.Mode(), err)
	}
}
