package sink

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
)

// places returns the seq of every line in a file, compressed or not.
func places(t testing.TB, path string) (list []uint64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, gzipSuffix) {
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if text, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(string(text)) {
		list = append(list, event.SeqOf([]byte(line)))
	}
	return list
}

// all returns the seq of every line, the oldest file first.
func allPlaces(t testing.TB, path string) (list []uint64) {
	t.Helper()
	old, err := rotated(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(old, path) {
		list = append(list, places(t, name)...)
	}
	return list
}

func expectPlaces(t testing.TB, got []uint64, n int) {
	t.Helper()
	if len(got) != n {
		t.Errorf("%d lines, want %d", len(got), n)
	}
	for i, seq := range got {
		if seq != uint64(i+1) {
			t.Fatalf("line %d has the event %d", i+1, seq)
		}
	}
}

func write(t testing.TB, d destination, events []Event) {
	t.Helper()
	if err := d.write(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

func fileRule(path, more string) string {
	return fmt.Sprintf("r: {to: {file: {path: %s%s}}}", path, more)
}

func TestFileTakesUpWhereItWasKilled(t *testing.T) {
	tests := []struct {
		name    string
		written int    // events before the kill
		half    string // what stands behind them
		again   int    // the first event that comes again
	}{
		{"nothing confirmed", 10, "", 1},
		{"all confirmed", 10, "", 11},
		{"in the middle of a line", 10, `{"tag":"num/x","from":"we`, 8},
		{"in the middle of the first word", 10, `{"t`, 11},
		{"before the first line end", 0, `{"tag":"num/x"`, 1},
		{"in a large batch", 9000, "", 12},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events.jsonl")
			first := openOne(t, fileRule(path, ""))
			write(t, first, makeEvents(t, 1, test.written))
			first.close()
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(test.half); err != nil {
				t.Fatal(err)
			}
			f.Close()
			second := openOne(t, fileRule(path, ""))
			write(t, second, makeEvents(t, test.again, test.written+5-test.again+1))
			write(t, second, makeEvents(t, test.written+6, 5))
			expectPlaces(t, places(t, path), test.written+10)
		})
	}
}

// TestFileOfAnotherJournal: the same places with other events are new events.
func TestFileOfAnotherJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	write(t, openOne(t, fileRule(path, "")), makeEvents(t, 1, 10))
	write(t, openOne(t, fileRule(path, "")), []Event{makeEvent(t, "other", `{}`, 3)})
	if got := places(t, path); len(got) != 11 || got[10] != 3 {
		t.Errorf("places %v, want 3 behind 1 to 10", got)
	}
}

func TestFileOfSomethingElseIsLeftAlone(t *testing.T) {
	for _, text := range []string{"root:x:0:0::/root:/bin/sh\n", "half of something", "{\"tag\":\"a\"}\n", "\x00\x01"} {
		path := filepath.Join(t.TempDir(), "precious")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := configure(t, fileRule(path, "")).Rules[0].to.open(t.Context(), testLog(t))
		if err == nil {
			d.close()
			t.Errorf("%q was taken for a file of events", text)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q has become %q, %v", text, got, err)
		}
	}
}

func TestFileOnlyThroughItsOwnName(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "events.jsonl")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := configure(t, fileRule(link, "")).Rules[0].to.open(t.Context(), testLog(t)); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func TestFileRotatesBySize(t *testing.T) {
	for _, compress := range []bool{false, true} {
		t.Run(fmt.Sprintf("compress %t", compress), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events.jsonl")
			d := openOne(t, fileRule(path, fmt.Sprintf(", rotate_size: 2KiB, compress: %t", compress)))
			for n := 1; n <= 200; n += 10 {
				write(t, d, makeEvents(t, n, 10))
			}
			expectPlaces(t, allPlaces(t, path), 200)
			old, err := rotated(path)
			if err != nil || len(old) < 5 {
				t.Fatalf("rotated files: %v, %v", old, err)
			}
			for _, name := range old {
				info, err := os.Stat(name)
				if err != nil || info.Mode().Perm() != 0o640 || strings.HasSuffix(name, gzipSuffix) != compress {
					t.Errorf("%s: %v, %v", name, info.Mode(), err)
				}
			}
		})
	}
}

func TestFileKeepsSoMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	bystander := path + ".note"
	if err := os.WriteFile(bystander, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := openOne(t, fileRule(path, ", rotate_size: 1KiB, keep: 3, compress: true"))
	for n := 1; n <= 300; n += 10 {
		write(t, d, makeEvents(t, n, 10))
	}
	old, err := rotated(path)
	if err != nil || len(old) != 3 {
		t.Errorf("%d old files, %v, want 3", len(old), err)
	}
	if got := allPlaces(t, path); got[len(got)-1] != 300 {
		t.Errorf("the last event is %d, want 300", got[len(got)-1])
	}
	if _, err := os.Stat(bystander); err != nil {
		t.Errorf("a file of somebody else: %v", err)
	}
}

// TestFileIsNotRotatedWhileEventsComeAgain: they could no longer be told from new
// ones after another kill.
func TestFileIsNotRotatedWhileEventsComeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	rule := fileRule(path, ", rotate_size: 1KiB")
	write(t, openOne(t, rule), makeEvents(t, 1, 50)) // killed before it was confirmed
	for range 3 {
		write(t, openOne(t, rule), makeEvents(t, 1, 52)) // and again
	}
	expectPlaces(t, allPlaces(t, path), 52)
}

func TestFileRotatesByAge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	d := openOne(t, fileRule(path, ", rotate_every: 1d"))
	write(t, d, makeEvents(t, 1, 5))
	write(t, d, makeEvents(t, 6, 5))
	if old, err := rotated(path); err != nil || len(old) != 0 {
		t.Fatalf("rotated on the same day: %v, %v", old, err)
	}
	yesterday := time.Now().Add(-day)
	if err := os.Chtimes(path, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	write(t, d, makeEvents(t, 11, 5))
	if old, err := rotated(path); err != nil || len(old) != 1 {
		t.Fatalf("not rotated on the next day: %v, %v", old, err)
	}
	expectPlaces(t, allPlaces(t, path), 15)
}

func TestFileMovedAwayBySomebody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	d := openOne(t, fileRule(path, ""))
	write(t, d, makeEvents(t, 1, 5))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, d, makeEvents(t, 6, 5))
	if got := append(places(t, path+".1"), places(t, path)...); len(got) != 10 || len(places(t, path)) != 5 {
		t.Errorf("places %v, want five in each file", got)
	}
}

// TestFileCompressesWhatAnEarlierRunLeft: it was killed between the two steps.
func TestFileCompressesWhatAnEarlierRunLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	left := path + ".20261120T000000.000Z"
	plain := openOne(t, fileRule(left, ""))
	write(t, plain, makeEvents(t, 1, 5))
	d := openOne(t, fileRule(path, ", rotate_size: 1KiB, compress: true"))
	write(t, d, makeEvents(t, 6, 20))
	write(t, d, makeEvents(t, 26, 5))
	if _, err := os.Stat(left); err == nil {
		t.Error("it is still there uncompressed")
	}
	expectPlaces(t, allPlaces(t, path), 30)
}

func TestFileOnAFullDisk(t *testing.T) {
	d := &file{fileTarget: &fileTarget{path: "/dev/full"}, log: testLog(t)}
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	d.f = f
	defer f.Close()
	if err := d.write(t.Context(), makeEvents(t, 1, 1)); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v, want the word of the system", err)
	}
}

// TestANewFileIsNotRotated: what a hangup begins again is not begun again once more with the
// second batch of events.
func TestANewFileIsNotRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	d := openOne(t, fileRule(path, ", rotate_size: 1MB"))
	d.(rotator).rotate()
	write(t, d, makeEvents(t, 1, 2))
	write(t, d, makeEvents(t, 3, 2))
	if old, err := rotated(path); err != nil || len(old) != 0 {
		t.Errorf("rotated: %v, %v", old, err)
	}
}

// TestRepeatedEventsOfSeveralJournals: two journals of a cluster have events with the same
// sequence; none is written twice, also if they come in another order, with new ones among them.
func TestRepeatedEventsOfSeveralJournals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	of := func(journal string, seq uint64) Event {
		e, err := parseEvent(event.NameMaster(makeEvent(t, "num/x", `{"n":1}`, seq).Line, journal))
		if err != nil || e.Journal != journal {
			t.Fatal(e, err)
		}
		return e
	}
	write(t, openOne(t, fileRule(path, "")), []Event{of("m1", 1), of("m2", 1), of("m1", 2), of("m2", 2)})
	write(t, openOne(t, fileRule(path, "")), []Event{of("m1", 3), of("m2", 1), of("m2", 2), of("m1", 1), of("m1", 2)})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		got = append(got, fmt.Sprintf("%s:%d", event.MasterOf([]byte(strings.TrimSpace(line))), event.SeqOf([]byte(strings.TrimSpace(line)))))
	}
	if want := []string{"m1:1", "m2:1", "m1:2", "m2:2", "m1:3"}; !slices.Equal(got, want) {
		t.Errorf("the file has %q, want %q", got, want)
	}
}
