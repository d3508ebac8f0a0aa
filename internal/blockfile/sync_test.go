package blockfile

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// The newest block is synced, whichever were added or removed meanwhile.
func TestSyncFindsTheNewestBlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	msgs := filepath.Join(dir, "jetstream", "SALT", "streams", "EVENTS", "msgs")
	if err := os.MkdirAll(msgs, 0o700); err != nil {
		t.Fatal(err)
	}
	s := NewSyncer(dir)
	for _, row := range []struct {
		add, remove []int
		newest      int
	}{
		{add: []int{1}, newest: 1},
		{newest: 1},
		{add: []int{2, 3}, newest: 3},
		{remove: []int{1, 2, 3}, add: []int{7}, newest: 7},
		{add: []int{9}, newest: 9}, // 8 was removed already
	} {
		for _, n := range row.remove {
			if err := os.Remove(blockPath(msgs, n)); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range row.add {
			if err := os.WriteFile(blockPath(msgs, n), []byte(strconv.Itoa(n)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := s.Sync("EVENTS"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := s.streams["EVENTS"].block; got != row.newest {
			t.Errorf("with %v added and %v removed block %d is taken for the newest, want %d", row.add, row.remove, got, row.newest)
		}
	}
	if err := s.Sync("NONE"); err == nil {
		t.Error("a stream that is not there was synced")
	}
}
