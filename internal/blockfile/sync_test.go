package blockfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/test/deadline"
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
		deadline.Call(t, all.Wait, "all")
		if got := s.streams["EVENTS"].block; got != row.newest {
			t.Errorf("with %v added and %v removed block %d is taken for the newest, want %d", row.add, row.remove, got, row.newest)
		}
	}
	if err := s.Sync("NONE"); err == nil {
		t.Error("a stream that is not there was synced")
	}
}

// TestABlockGrowsWhileItIsSynced: a sync covers what was written before it began. What comes into a block later, before
// the server begins the next block, is on the disk after the next sync.
func TestABlockGrowsWhileItIsSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	msgs := filepath.Join(dir, "jetstream", "SALT", "streams", "EVENTS", "msgs")
	if err := os.MkdirAll(msgs, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(n int, text string) {
		t.Helper()
		if err := os.WriteFile(blockPath(msgs, n), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	onDisk := map[string]string{}
	grows := true
	s := NewSyncer(dir)
	s.data = func(f *os.File) error {
		path := f.Name()
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if onDisk[path] = string(text); grows && path == blockPath(msgs, 1) {
			grows = false
			write(1, "one two")
			write(2, "three")
		}
		return nil
	}
	write(1, "one")
	for range 2 {
		if err := s.Sync("EVENTS"); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]string{1: "one two", 2: "three"} {
		if got := onDisk[blockPath(msgs, n)]; got != want {
			t.Errorf("of block %d the disk has %q, want %q", n, got, want)
		}
	}
}

// TestAStreamThatIsMadeAnewIsSynced: its blocks begin at 1 again, in new directories.
func TestAStreamThatIsMadeAnewIsSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	msgs := filepath.Join(dir, "jetstream", "SALT", "streams", "EVENTS", "msgs")
	var synced []string
	s := NewSyncer(dir)
	s.data = func(f *os.File) error {
		err := posix.SyncData(f)
		if err == nil {
			synced = append(synced, filepath.Base(f.Name()))
		}
		return err
	}
	for _, n := range []int{7, 1} {
		err := errors.Join(os.RemoveAll(filepath.Dir(msgs)), os.MkdirAll(msgs, 0o700), os.WriteFile(blockPath(msgs, n), nil, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sync("EVENTS"); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"7.blk", "1.blk"}; !slices.Equal(synced, want) {
		t.Errorf("synced were %q, want %q", synced, want)
	}
}

// TestTheServerHasTheErrorOfAFailedWrite: the kernel tells those of it who had the file open, and nobody who opens it later.
// The server's own sync fails and reports that it cannot write, or it is silent; then the daemon ends, reopens the store, or
// syncs once more.
func TestTheServerHasTheErrorOfAFailedWrite(t *testing.T) {
	t.Parallel()
	if !posix.OpenFilesMove {
		t.Skip("the server could not remove a block that is open")
	}
	for name, look := range map[string]func(t *testing.T, s *Syncer){
		"the next sync": func(t *testing.T, s *Syncer) {
			if err := s.Sync("EVENTS"); !errors.Is(err, syscall.EIO) {
				t.Errorf("what was not written passes for synced: %v", err)
			}
		},
		"the next start": func(t *testing.T, s *Syncer) {
			s.Again()
			if left, err := noted(s.dir); len(left) != 1 || err != nil {
				t.Errorf("it is told of %v, %v", left, err)
			}
		},
		"the store is reopened": func(t *testing.T, s *Syncer) {
			if renewed, err := s.Renew(); !renewed || err != nil {
				t.Errorf("what was not written is not written again: %t, %v", renewed, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			msgs := filepath.Join(dir, "jetstream", "SALT", "streams", "EVENTS", "msgs")
			if err := errors.Join(os.MkdirAll(msgs, 0o700), os.WriteFile(blockPath(msgs, 1), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			open, failed := map[*os.File]bool{}, false // by the time of the failure
			s := NewSyncer(dir)
			s.data = func(f *os.File) error {
				switch {
				case !failed:
					open[f] = true
				case open[f]:
					delete(open, f)
					return syscall.EIO
				}
				return nil
			}
			if err := s.Sync("EVENTS"); err != nil {
				t.Fatal(err)
			}
			failed = true
			look(t, s)
		})
	}
}

// TestAllStreamsAreSynced: also those that nobody has synced, and not what was on the disk before.
func TestAllStreamsAreSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(stream string, blocks ...int) {
		t.Helper()
		msgs := filepath.Join(dir, "jetstream", "SALT", "streams", stream, "msgs")
		if err := os.MkdirAll(msgs, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, n := range blocks {
			if err := os.WriteFile(blockPath(msgs, n), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("EVENTS", 1, 2, 3)
	write("AUDIT", 1)
	write("EMPTY")
	s := NewSyncer(dir)
	if err := s.Stored(); err != nil {
		t.Fatal(err)
	}
	var names []string
	fails := ""
	s.data = func(f *os.File) error {
		name := filepath.Base(filepath.Dir(filepath.Dir(f.Name()))) + " " + filepath.Base(f.Name())
		if name == fails {
			return syscall.EIO
		}
		names = append(names, name)
		return nil
	}
	if err := s.Sync("AUDIT"); err != nil {
		t.Fatal(err)
	}
	write("EVENTS", 4)
	write("NEW", 1, 2)
	ended, end := context.WithCancel(t.Context())
	end()
	names = nil
	if err := s.All(ended); !errors.Is(err, context.Canceled) || len(names) > 0 {
		t.Errorf("without time all is synced: %v, %q", err, names)
	}
	if err := s.All(t.Context()); err != nil {
		t.Error(err)
	}
	slices.Sort(names)
	if want := []string{"AUDIT 1.blk", "EVENTS 3.blk", "EVENTS 4.blk", "NEW 1.blk", "NEW 2.blk"}; !slices.Equal(names, want) {
		t.Errorf("synced are %q, want %q", names, want)
	}
	fails = "NEW 2.blk"
	if err := s.All(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("a stream cannot be synced: %v", err)
	}
	if left, err := noted(dir); !slices.Equal(left, []string{"NEW"}) || err != nil {
		t.Errorf("the next start is told of %v, %v", left, err)
	}
	removed := filepath.Join(dir, "jetstream", "SALT", "streams", "EVENTS")
	s.streams["NEW"].failed = nil
	if fails = ""; os.RemoveAll(removed) != nil || s.All(t.Context()) != nil {
		t.Error("a stream that was removed counts as one that cannot be synced")
	}
}

// A stream whose sync has failed stays failed, though the kernel says of the same file
// that all is well the next time, until it was written again; what was synced before stays.
func TestAFailedSyncStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	msgs := filepath.Join(dir, "jetstream", "SALT", "streams", "EVENTS", "msgs")
	if err := os.MkdirAll(msgs, 0o700); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, "first") // keeps the inodes from being used again
	if err := os.Mkdir(first, 0o700); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		err := os.WriteFile(blockPath(msgs, n), []byte(strconv.Itoa(n)), 0o600)
		if err == nil {
			err = os.Link(blockPath(msgs, n), blockPath(first, n))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	same := func(n int) bool {
		a, err := os.Stat(blockPath(first, n))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.Stat(blockPath(msgs, n))
		if err != nil {
			t.Fatal(err)
		}
		return os.SameFile(a, b)
	}
	s := NewSyncer(dir)
	fails, calls := blockPath(msgs, 2), 0
	s.data = func(f *os.File) error {
		if calls++; f.Name() == fails {
			fails = "" // the kernel tells an error once
			return syscall.EIO
		}
		return posix.SyncData(f)
	}
	for range 3 {
		if err := s.Sync("EVENTS"); !errors.Is(err, syscall.EIO) {
			t.Errorf("what was not written passes for synced: %v", err)
		}
	}
	if calls != 2 {
		t.Errorf("%d files were synced", calls)
	}
	fails = blockPath(msgs, 3) + ".new"
	if renewed, err := s.Renew(); !renewed || !errors.Is(err, syscall.EIO) {
		t.Errorf("the disk takes nothing yet: %t, %v", renewed, err)
	}
	if err := s.Sync("EVENTS"); !errors.Is(err, syscall.EIO) {
		t.Errorf("after that: %v", err)
	}
	if left, err := noted(dir); len(left) != 1 || err != nil {
		t.Errorf("the next start is told of %v, %v", left, err)
	}
	if renewed, err := s.Renew(); !renewed || err != nil {
		t.Fatal(renewed, err)
	}
	if left, err := noted(dir); len(left) > 0 || err != nil {
		t.Errorf("the next start is told of what is done: %v, %v", left, err)
	}
	if !same(1) || same(2) || same(3) {
		t.Error("written anew is not what was not synced")
	}
	if b, err := os.ReadFile(blockPath(msgs, 3)); string(b) != "3" || err != nil {
		t.Errorf("a block has become %q, %v", b, err)
	}
	if left, err := filepath.Glob(filepath.Join(msgs, "*.new")); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	if err := s.Sync("EVENTS"); err != nil {
		t.Error(err)
	}
	if renewed, err := s.Renew(); renewed || err != nil {
		t.Errorf("nothing has failed since: %t, %v", renewed, err)
	}
}

// TestADamagedBlockIsOverwrittenWhenItsCopyIsOnTheDisk: a power cut would leave neither otherwise.
func TestADamagedBlockIsOverwrittenWhenItsCopyIsOnTheDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "1.blk")
	content := func() string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := os.WriteFile(path, []byte("whole, damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	var synced []string
	for _, failing := range []string{"1.blk", copies, filepath.Base(dir), ""} {
		synced = nil
		broken := errors.New("the disk does not answer")
		b := block{stream: "EVENTS", text: []byte(content()), report: new(Report), found: []damage{{at: 5, end: 14, discarded: true}}}
		b.checker = Checker{Dir: dir, Repair: true, sync: func(path string) error {
			if failing != "" && strings.HasSuffix(path, failing) {
				return broken
			}
			synced = append(synced, path)
			return nil
		}}
		if err := b.handle(path); failing != "" && (!errors.Is(err, broken) || content() != "whole, damaged") || failing == "" && (err != nil || content() != "whole") {
			t.Errorf("%q cannot be synced: %v, the block is %q", failing, err, content())
		}
	}
	if len(synced) != 3 || filepath.Dir(synced[0]) != synced[1] || synced[2] != dir {
		t.Errorf("synced are %q", synced)
	}
}

// TestAStartAfterAKillSyncs: what is in the store then is shown, and who stores it again is told that it is stored. A sync
// may have failed under the daemon that was killed, before there was a note.
func TestAStartAfterAKillSyncs(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		clean bool
		again bool // it is no start: the daemon opens its store again
		boot  string
		fails string // the block whose sync fails once
		err   error
		fresh []int // blocks that are other files afterwards
		full  []int // blocks to be written again later
		syncs bool
	}{
		"killed":                  {boot: boot(), fresh: []int{2, 3}, syncs: true},
		"a write has failed":      {boot: boot(), fails: "1.blk", err: syscall.EIO, fresh: []int{1, 2, 3}, syncs: true},
		"a copy cannot be synced": {boot: boot(), fails: "3.blk.new", err: syscall.EIO, fresh: []int{2, 3}, syncs: true},
		"no room for a copy":      {boot: boot(), fails: "2.blk.new", err: syscall.ENOSPC, fresh: []int{3}, full: []int{2}, syncs: true},
		"stopped":                 {boot: boot(), clean: true},
		"another boot":            {boot: "another"},
		"opened again":            {boot: boot(), again: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			msgs := filepath.Join(dir, "jetstream", "SALT", "streams", "EVENTS", "msgs")
			err := errors.Join(os.MkdirAll(msgs, 0o700), os.Mkdir(filepath.Join(dir, "first"), 0o700), State{Clean: row.clean, Boot: row.boot}.Write(dir))
			if err != nil {
				t.Fatal(err)
			}
			first := func(n int) string { return blockPath(filepath.Join(dir, "first"), n) } // keeps the inode from being used again
			for n := 1; n <= 3; n++ {
				if err := errors.Join(os.WriteFile(blockPath(msgs, n), nil, 0o600), os.Link(blockPath(msgs, n), first(n))); err != nil {
					t.Fatal(err)
				}
			}
			synced := map[string]bool{}
			data := func(f *os.File) error {
				name := filepath.Base(f.Name())
				if name == row.fails {
					row.fails = "" // the kernel tells an error once
					return row.err
				}
				synced[name] = true
				return nil
			}
			on := realDisk()
			on.data = data
			if m, _, err := recoverStore(dir, on, !row.again); err != nil || !slices.Equal(m.Rewrite["EVENTS"], row.full) {
				t.Fatal(m.Rewrite, err)
			}
			for n := 1; n <= 3; n++ {
				then, err := os.Stat(first(n))
				if err != nil {
					t.Fatal(err)
				}
				now, err := os.Stat(blockPath(msgs, n))
				if err != nil {
					t.Fatal(err)
				}
				if fresh := !os.SameFile(then, now); fresh != slices.Contains(row.fresh, n) {
					t.Errorf("block %d was written again: %t", n, fresh)
				}
				name := strconv.Itoa(n) + ".blk"
				if is := synced[name] || synced[name+".new"]; is != row.syncs {
					t.Errorf("block %d was synced: %t", n, is)
				}
			}
			if left, err := noted(dir); len(left) > 0 || err != nil {
				t.Errorf("the next start is told of what is done: %v, %v", left, err)
			}
		})
	}
}

// TestWhatThereWasNoRoomForIsWrittenLater: as soon as the store is closed and there is room. Until then the store does not
// count as closed cleanly.
func TestWhatThereWasNoRoomForIsWrittenLater(t *testing.T) {
	t.Parallel()
	start := func(dir string, on disk) error {
		_, _, err := recoverStore(dir, on, true)
		return err
	}
	again := func(dir string, on disk) error {
		_, _, err := recoverStore(dir, on, false)
		return err
	}
	stop := func(dir string, on disk) error {
		m, err := ReadState(dir)
		if err != nil {
			return err
		}
		return m.leave(dir, on.data)
	}
	for name, row := range map[string]struct {
		next  func(dir string, on disk) error
		boot  string
		full  bool
		fresh bool // the block is another file
		left  bool // it is still to be written
		clean bool
		err   error
	}{
		"start":                    {next: start, boot: boot(), fresh: true},
		"start, still full":        {next: start, boot: boot(), full: true, left: true},
		"start after a power cut":  {next: start, boot: "another"},
		"reopened":                 {next: again, boot: boot(), fresh: true},
		"reopened, still full":     {next: again, boot: boot(), full: true, left: true},
		"orderly stop":             {next: stop, boot: boot(), fresh: true, clean: true},
		"orderly stop, still full": {next: stop, boot: boot(), full: true, left: true, err: errNoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			msgs := filepath.Join(dir, "jetstream", "SALT", "streams", "EVENTS", "msgs")
			err := errors.Join(os.MkdirAll(msgs, 0o700), State{Boot: row.boot, Rewrite: map[string][]int{"EVENTS": {2}, "REMOVED": {1}}}.Write(dir))
			if err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= 5; n++ { // 2 is not one of the newest any more
				if err := os.WriteFile(blockPath(msgs, n), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			aside := filepath.Join(dir, "aside") // keeps the inode from being used again
			if err := os.Link(blockPath(msgs, 2), aside); err != nil {
				t.Fatal(err)
			}
			on := realDisk()
			on.data = func(f *os.File) error {
				if row.full && filepath.Base(f.Name()) == "2.blk.new" {
					return syscall.EDQUOT
				}
				return nil
			}
			if err := row.next(dir, on); !errors.Is(err, row.err) {
				t.Fatal(err)
			}
			m, err := ReadState(dir)
			if left := slices.Equal(m.Rewrite["EVENTS"], []int{2}); left != row.left || m.Clean != row.clean || err != nil {
				t.Errorf("recorded is %+v, %v", m, err)
			}
			then, err := os.Stat(aside)
			if err != nil {
				t.Fatal(err)
			}
			now, err := os.Stat(blockPath(msgs, 2))
			if err != nil {
				t.Fatal(err)
			}
			if fresh := !os.SameFile(then, now); fresh != row.fresh {
				t.Errorf("the block was written again: %t", fresh)
			}
		})
	}
}
