package journal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestAMirrorOnAFullDisk: a mirror that cannot be written can still be read, and once there is
// space and it is opened again, it receives the rest.
func TestAMirrorOnAFullDisk(t *testing.T) {
	disk := smallDisk(t)
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

// TestAMemberOnAFullDiskEnds: its daemon is told to end, and what it takes is refused. The others store on
// meanwhile, and it has all of that when it is started again with space.
func TestAMemberOnAFullDiskEnds(t *testing.T) {
	disk := smallDisk(t)
	s := bustest.NewSystem(t, 3)
	full := s.Members[2]
	full.Dir = filepath.Join(disk, "store")
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	j, other, own := openMember(t, s.Members[0]), openMember(t, s.Members[1]), openMember(t, full)
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	stored := func() {
		t.Helper()
		for _, one := range []*journal.Journal{j, other} {
			if _, err := one.Append(inTime(t), filled("long", "x", 300<<10), ""); err != nil {
				t.Fatal("another member suffers: ", err)
			}
		}
	}
	var ended error
	for end := time.Now().Add(time.Minute); ended == nil; stored() {
		select {
		case ended = <-full.Failed():
		default:
			if time.Now().After(end) {
				t.Fatal("the member on the full disk does not end")
			}
		}
	}
	if _, err := own.Append(inTime(t), filled("lost", "x", 10), ""); !errors.Is(err, journal.ErrStore) {
		t.Errorf("it stores an event after %v: %v", ended, err)
	}
	own.Close()
	full.Stop()
	stored()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	full.Start(t)
	s.Linked(t)
	last, err := j.Last(inTime(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range s.Members[:2] {
		c, err := peer(t, full, one.Name).Open(inTime(t), journal.Query{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		all := errors.New("all")
		if err := c.Each(inTime(t), func(e event.Event) error {
			if e.Seq == last {
				return all
			}
			return nil
		}); !errors.Is(err, all) {
			t.Errorf("what %s has stored: %v", one.Name, err)
		}
	}
	if _, err := openMember(t, full).Append(inTime(t), filled("again", "x", 10), ""); err != nil {
		t.Errorf("with space again: %v", err)
	}
}

// smallDisk mounts a disk of 8 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("this needs the right to mount a small disk: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// fullDisk starts a broker on a disk that make has written to and that is then filled.
func fullDisk(t *testing.T, make func(b *broker.Broker, disk string)) (free func()) {
	disk := smallDisk(t)
	b := startStore(t, filepath.Join(disk, "store"))
	make(b, disk)
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	return func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemovalsOnAFullDisk: the server records the removal of messages in the middle of a block.
// If the disk had space for only a part of that record, the server would wait for its own lock
// forever and answer nobody.
func TestRemovalsOnAFullDisk(t *testing.T) {
	soon := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	t.Run("queue", func(t *testing.T) {
		var q *journal.Queue
		free := fullDisk(t, func(b *broker.Broker, _ string) {
			var err error
			if q, err = journal.OpenQueue(t.Context(), b.Conn(), "OUTBOX", b.Store()); err != nil {
				t.Fatal(err)
			}
			put(t, q, 0, 2000)
		})
		if err := q.Remove(soon(t), 1500); !errors.Is(err, journal.ErrStore) {
			t.Fatalf("a removal without room for it: %v", err)
		}
		free()
		waitFor(t, "the removal", func() bool { return q.Remove(soon(t), 1500) == nil })
		expectSpan(t, q, 1501, 2000)
		if got := bodies(read(t, q, 1501, 2, 1<<20)); !slices.Equal(got, []string{"1500", "1501"}) {
			t.Errorf("what is left is %v", got)
		}
	})
	t.Run("table", func(t *testing.T) {
		var table *journal.Table
		free := fullDisk(t, func(b *broker.Broker, disk string) {
			j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: b.Store()})
			if err == nil {
				table, err = j.Table(t.Context(), "things")
			}
			if err != nil {
				t.Fatal(err)
			}
			for n := 0; n == 0 || !splits(t, disk, "KV_things", 30); n++ {
				// Not with Put, which reserves room.
				if _, err := b.Conn().RequestWithContext(soon(t), "$KV.things."+strconv.Itoa(n), []byte(strings.Repeat("x", n%97))); err != nil {
					t.Fatal(err)
				}
			}
		})
		if err := table.Remove(soon(t), "0"); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("a removal without room for it: %v", err)
		}
		if err := table.Delete(soon(t), "0"); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("a deletion without room for it: %v", err)
		}
		if err := table.Put(soon(t), "0", nil); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("an entry without room for the record of what it replaces: %v", err)
		}
		if _, err := table.Update(soon(t), "0", nil, 1); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("an update without room for the record of what it replaces: %v", err)
		}
		free()
		if err := table.Remove(soon(t), "0"); err != nil {
			t.Fatal(err)
		}
		if got, err := table.Get(soon(t), "0"); err != nil || got != nil {
			t.Errorf("what was removed is %q, %v", got, err)
		}
	})
}

// splits reports whether a full disk has space for only a part of that many more bytes in the
// newest block of a stream.
func splits(t *testing.T, disk, stream string, bytes int64) bool {
	t.Helper()
	return hasLeft(t, disk, stream, 1, bytes)
}

// hasLeft reports whether the newest block of a stream can grow by at least that many bytes on a full disk, and by less than most.
func hasLeft(t *testing.T, disk, stream string, least, most int64) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(disk, "store/jetstream/*/streams", stream, "msgs/*.blk"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	info, err := os.Stat(found[0])
	if err != nil {
		t.Fatal(err)
	}
	left := -info.Size() & 4095
	return least <= left && left < most
}

// fillDisk writes until there is no space left.
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
