package journal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestAMirrorOnAFullDisk: the mirror that cannot be written stops no reader of what it has, and
// when there is room, and it was opened anew, it has all.
func TestAMirrorOnAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("this needs the right to mount a small disk: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	a := startOwner(t, t.TempDir(), "m1-a", "127.0.0.1:0")
	addTo(t, a.journal, "one")
	s, m := startMirror(t, filepath.Join(disk, "mirror"), a.broker.Links.Addr(), "m1-a", "m2-b")
	heard(t, m, 1)
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	var last uint64
	for range 3 {
		var err error
		if last, err = a.journal.Append(t.Context(), filled("long", "x", 900<<10), ""); err != nil {
			t.Fatal("the own journal suffers: ", err)
		}
	}
	waitFor(t, "that the mirror cannot be written", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Last(ctx)
		return err != nil
	})
	if last, err := a.journal.Last(t.Context()); err != nil || last == 0 {
		t.Errorf("the own journal: %d, %v", last, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, m, last); len(got) != 4 || got[0] != "1one" {
		t.Errorf("the mirror has %v", got)
	}
}

// fillDisk writes until the disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
