package posix

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLocksKeepOthersOut(t *testing.T) {
	dir := t.TempDir()
	open := func() *os.File {
		f, err := OpenLock(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := Lock(first, Shared); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(second, Shared); err != nil {
		t.Errorf("a second reader: %v", err)
	}
	if err := TryLock(first, Exclusive); !errors.Is(err, ErrLocked) {
		t.Errorf("a writer beside a reader: %v, want ErrLocked", err)
	}
	if err := errors.Join(Unlock(first), Unlock(second)); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(second, Exclusive); err != nil {
		t.Errorf("after both have gone: %v", err)
	}
}

func TestOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if uid, mode, err := Owner(path, info); uid != os.Geteuid() || mode.Perm() != 0o600 || err != nil {
		t.Errorf("Owner of a file of ours: %d, %v, %v", uid, mode, err)
	}
}

func TestUnsupportedNamesWhatAndWhere(t *testing.T) {
	err := Unsupported("a umask")
	if !errors.Is(err, errors.ErrUnsupported) || !strings.HasPrefix(err.Error(), "a umask is not supported on ") {
		t.Errorf("%v", err)
	}
}
