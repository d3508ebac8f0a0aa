package journal_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/test/bustest"
)

// logHasRoom reports whether the log that was written last, that of the Raft group of the table, can take a few more entries on a full disk.
func logHasRoom(t *testing.T, disk string) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(disk, "store/jetstream/*/_js_/*/msgs/*.blk"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	var newest os.FileInfo
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && (newest == nil || info.ModTime().After(newest.ModTime())) {
			newest = info
		}
	}
	return newest != nil && -newest.Size()&4095 > 1000
}

// TestAMemberThatIsStuckEnds: the disk of a member becomes full in the middle of the record of a removal, and has space again soon
// after. Its server waits for its own lock then, and perhaps no write fails. The member ends, and the others store on.
func TestAMemberThatIsStuckEnds(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	s := bustest.NewSystem(t, 3)
	full := s.Members[2]
	full.Dir = filepath.Join(disk, "store")
	full.Change = func(o *broker.Options) {
		o.Stuck = 5 * time.Second
		o.Log = slog.New(slog.DiscardHandler) // what is left of its server stays when the test ends
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	tables := openTables(t, s, "things")
	copyOf(t, full, "things") // it leads the table
	for n := range 50 {
		if err := tables[0].Put(inTime(t), fmt.Sprint(n), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	const last, record = int64(22 + len("$KV.things.=last") + 8), int64(22 + 8) // of the last message of a table, and of a removal
	ballast := filepath.Join(disk, "ballast")
	var ended error
	for n := 0; ended == nil; n++ {
		for m := 0; m == 0 || !hasLeft(t, disk, "KV_things", last, last+record) || !logHasRoom(t, disk); m++ {
			if err := tables[0].Put(inTime(t), "filler", []byte(strings.Repeat("x", m%97))); err != nil {
				t.Fatal(err)
			}
		}
		fillDisk(t, ballast)
		removed := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() { removed <- tables[0].Remove(ctx, fmt.Sprint(n)) }()
		time.Sleep(200 * time.Millisecond)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		err := <-removed
		select {
		case ended = <-full.Failed():
		default:
		}
		if ended == nil && (err != nil || n == 49) {
			t.Fatal("the member goes on, after: ", err)
		}
	}
	if !strings.Contains(ended.Error(), "does not answer") {
		t.Error("it ends for another reason: ", ended)
	}
	begun := time.Now()
	full.Bus.Stop()
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it has ended after %s", took)
	}
	s.Remove(full.Key.Public()) // as does the end of its process
	bustest.Until(t, "the others have no link with it", func() bool { return s.Members[0].Cluster.Routes() == 1 && s.Members[1].Cluster.Routes() == 1 })
	for _, table := range tables[:2] {
		if err := table.Put(inTime(t), "filler", []byte("y")); err != nil {
			t.Errorf("another member suffers, after %v: %v", ended, err)
		}
	}
}
