package blockfile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/posix"
)

// TestReserver: the room is behind the newest block, which stays as long as it is, and is made again
// behind a block that is new, was replaced or was cut.
func TestReserver(t *testing.T) {
	dir := t.TempDir()
	msgs := filepath.Join(dir, "jetstream/SALT/streams/OUTBOX/msgs")
	if err := os.MkdirAll(msgs, 0o700); err != nil {
		t.Fatal(err)
	}
	r := NewReserver(dir)
	if err := r.Reserve("OUTBOX", 10); err != nil {
		t.Fatalf("a stream without blocks: %v", err)
	}
	write := func(name string, size int) string {
		path := filepath.Join(msgs, name)
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	expect := func(what, path string, size int64, messages uint64) {
		t.Helper()
		if err := r.Reserve("OUTBOX", messages); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		room := info.Sys().(*syscall.Stat_t).Blocks*512 - size
		if info.Size() != size || room < int64(messages)*removalBytes {
			t.Errorf("%s: a block of %d bytes, with %d behind it", what, info.Size(), room)
		}
	}
	write("1.blk", 100)
	second := write("2.blk", 5000)
	f, err := os.OpenFile(second, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := posix.AllocateMore(f, 1); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the file system here makes no room before it is written")
	}
	expect("the newest block", second, 5000, 10)
	expect("more messages", second, 5000, 20_000)
	if err := os.Truncate(second, 100); err != nil {
		t.Fatal(err)
	}
	expect("one that was cut", second, 100, 10)
	if err := os.Rename(write("2.tmp", 6000), second); err != nil {
		t.Fatal(err)
	}
	expect("one that was replaced", second, 6000, 10)
	expect("a new one", write("3.blk", 10), 10, 10)
}
