package journal_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
)

func openReserved(t *testing.T, b *broker.Broker) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Reserve: b.Reserve})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// fill stores count events of about 1 KiB each.
func fill(t *testing.T, j *journal.Journal, count int) {
	t.Helper()
	var last *journal.Pending
	for i := range count {
		p, err := j.Begin(filled(fmt.Sprintf("mytag/%d", i), "x", 1000), "")
		if err != nil {
			t.Fatal(err)
		}
		last = p
	}
	if _, err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// killed copies a store that is open, as a kill leaves it.
func killed(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func blocks(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/EVENTS/msgs/*.blk"))
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	return list
}

// edit changes a file.
func edit(t *testing.T, path string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, f(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sequences(t *testing.T, j *journal.Journal) map[uint64]bool {
	t.Helper()
	have := map[uint64]bool{}
	for _, e := range readAll(t, j, journal.Query{}) {
		have[e.Seq] = true
	}
	return have
}

// Damage of one record loses only that record: all readable records after it are there after
// the start, the loss is reported with its sequence and the times around it, and a copy of the
// block is kept.
func TestDamageOfOneRecordLosesThatRecordOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openReserved(t, startStore(t, dir))
	const count = 3000
	fill(t, j, count)
	for name, at := range map[string]int{"data": 400, "length": 0, "length, larger": 2, "sequence": 5, "subject": 24, "sum": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := killed(t, dir)
			edit(t, blocks(t, dir)[0], func(b []byte) []byte {
				begin := 0
				for range 1000 {
					begin += int(b[begin]) + int(b[begin+1])<<8 // the length of a record
				}
				if at < 0 {
					begin += int(b[begin]) + int(b[begin+1])<<8
				}
				b[begin+at] ^= 0x40
				return b
			})
			b := startStore(t, dir)
			have := sequences(t, openReserved(t, b))
			lost, _ := b.Lost()
			if len(have) != count-1 || have[1001] || !have[1002] || !have[count] {
				t.Errorf("%d of %d events are there; 1001: %v, 1002: %v", len(have), count, have[1001], have[1002])
			}
			if len(lost) != 1 || lost[0].From != 1001 || lost[0].To != 1001 || lost[0].After.IsZero() || lost[0].Before.IsZero() {
				t.Fatalf("told is %v", lost)
			}
			if copied, err := os.Stat(lost[0].Copy); err != nil || copied.Size() == 0 {
				t.Errorf("the block as it was: %v", err)
			}
		})
	}
}

// A sequence that readers have seen is not used again when the end of the journal is lost, by a
// power cut or damage; after a kill, which loses nothing, the sequences continue.
func TestSequencesAreNotGivenOutAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openReserved(t, startStore(t, dir))
	const count = 500
	fill(t, j, count)
	power := func(t *testing.T, dir string) {
		edit(t, filepath.Join(dir, "state.json"), func(b []byte) []byte {
			_, rest, _ := strings.Cut(string(b), `"boot":"`)
			id, _, _ := strings.Cut(rest, `"`)
			return []byte(strings.Replace(string(b), id, "another", 1))
		})
	}
	half := func(t *testing.T, dir string) {
		edit(t, blocks(t, dir)[0], func(b []byte) []byte { return b[:len(b)/2] })
	}
	for name, row := range map[string]struct {
		do   func(*testing.T, string)
		goOn bool
		lost bool
	}{
		"killed": {func(*testing.T, string) {}, true, false},
		"killed while it wrote": {func(t *testing.T, dir string) {
			edit(t, blocks(t, dir)[0], func(b []byte) []byte {
				part := bytes.Clone(b[:300])
				binary.LittleEndian.PutUint64(part[4:], count+1)
				return append(b, part...)
			})
		}, true, false},
		"power cut": {func(t *testing.T, dir string) {
			half(t, dir)
			power(t, dir)
		}, false, true},
		"damaged end": {func(t *testing.T, dir string) {
			edit(t, blocks(t, dir)[0], func(b []byte) []byte { b[len(b)-40] ^= 1; return b })
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := killed(t, dir)
			row.do(t, dir)
			b := startStore(t, dir)
			j := openReserved(t, b)
			lost, _ := b.Lost()
			if (len(lost) > 0) != row.lost {
				t.Errorf("told is %v", lost)
			}
			seq := appendNamed(t, j, "")
			if seq <= count || (seq == count+1) != row.goOn {
				t.Errorf("the next event is at %d", seq)
			}
			have := sequences(t, j)
			b.Stop()
			b = startStore(t, dir)
			j = openReserved(t, b)
			if again := sequences(t, j); len(again) != len(have) {
				t.Errorf("after one more start there are %d events, and were %d", len(again), len(have))
			}
			if lost, _ := b.Lost(); len(lost) > 0 {
				t.Errorf("after an orderly stop it tells of %v", lost)
			}
			if next := appendNamed(t, j, ""); next != seq+1 {
				t.Errorf("the next event is at %d, behind %d", next, seq)
			}
		})
	}
}

// A journal that lost its end after an orderly stop also continues after the lost sequences.
func TestShortenedAfterAnOrderlyStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startStore(t, dir)
	fill(t, openReserved(t, b), 200)
	b.Stop()
	edit(t, blocks(t, dir)[0], func(text []byte) []byte { return text[:len(text)/2] })
	b = startStore(t, dir)
	j := openReserved(t, b)
	lost, _ := b.Lost()
	if seq := appendNamed(t, j, ""); seq != 201 || len(lost) != 1 || lost[0].To != 200 {
		t.Errorf("the next event is at %d, told is %v", seq, lost)
	}
}

// Blocks of the embedded NATS server are read as it wrote them: with headers, long messages,
// removed messages and tables.
func TestBlocksWrittenByTheServerAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startStore(t, dir)
	j := openReserved(t, b)
	fill(t, j, 100)
	appendNamed(t, j, "web1/a")
	if _, err := j.Append(t.Context(), filled("long", "x", 1<<20), "web1/b"); err != nil {
		t.Fatal(err)
	}
	table, err := j.Table(t.Context(), "mytable")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := table.Put(t.Context(), fmt.Sprint(i%3), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Purger().PurgeWhere(t.Context(), 50, func([]byte) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	last, err := j.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"open", "closed"} {
		r, err := blockfile.Checker{Dir: dir}.Check()
		if err != nil || len(r.Lost) > 0 || r.Last["EVENTS"] != last || r.Records < 200 {
			t.Errorf("%s: %+v, %v; the last event is %d", when, r, err, last)
		}
		b.Stop()
	}
}
