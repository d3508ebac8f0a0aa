package journal_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
)

func openNamed(t *testing.T, b *broker.Broker, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Names: filepath.Join(dir, "names")})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func appendNamed(t *testing.T, j *journal.Journal, name string) uint64 {
	t.Helper()
	seq, err := j.Append(t.Context(), filled("mytag", "a", 10), name)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// After a start, duplicates are recognised from the file of names, not by reading the journal:
// this works even if the event has been removed from the journal.
func TestNamesAreNotReadFromTheJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startStore(t, dir)
	j := openNamed(t, b, dir)
	first := appendNamed(t, j, "web1/a")
	last := appendNamed(t, j, "web2/b")
	j.Close()
	if _, err := j.Purger().PurgeBefore(t.Context(), last+1); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	j = openNamed(t, startStore(t, dir), dir)
	if seq := appendNamed(t, j, "web1/a"); seq != first {
		t.Errorf("the repetition is at %d, the event was at %d", seq, first)
	}
	if seq := appendNamed(t, j, "web1/c"); seq != last+1 {
		t.Errorf("the next event is at %d, want %d", seq, last+1)
	}
}

// Names that were not written to the file, or are damaged in it, are read from the journal.
func TestNamesOverALostFile(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{"killed", "torn", "gone", "of another journal"} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "names")
			b := startStore(t, dir)
			j := openNamed(t, b, dir)
			want := map[string]uint64{}
			for i := range 40 {
				name := "web1/" + strconv.Itoa(i)
				want[name] = appendNamed(t, j, name)
			}
			text := waitFile(t, file)
			if damage != "killed" {
				j.Close()
			}
			b.Stop()
			var err error
			switch damage {
			case "torn":
				err = os.WriteFile(file, text[:len(text)-7], 0o600)
			case "gone":
				err = os.Remove(file)
			case "of another journal":
				other := t.TempDir()
				foreign := startStore(t, other)
				o := openNamed(t, foreign, other)
				appendNamed(t, o, "web1/new")
				o.Close()
				if text, err = os.ReadFile(filepath.Join(other, "names")); err == nil {
					err = os.WriteFile(file, text, 0o600)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			j = openNamed(t, startStore(t, dir), dir)
			for name, seq := range want {
				if again := appendNamed(t, j, name); again != seq {
					t.Errorf("%s is at %d, and was at %d", name, again, seq)
				}
			}
			if appendNamed(t, j, "web1/new") != 41 {
				t.Error("a new event is taken for a repetition")
			}
		})
	}
}

// Names in the file after the end of the journal, which a power cut has removed, are ignored.
func TestNamesAheadOfTheJournal(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), t.TempDir()
	b := startStore(t, dir)
	j := openNamed(t, b, dir)
	appendNamed(t, j, "web1/a")
	j.Close()
	b.Stop()
	if err := os.CopyFS(old, os.DirFS(filepath.Join(dir, "jetstream"))); err != nil {
		t.Fatal(err)
	}
	b = startStore(t, dir)
	j = openNamed(t, b, dir)
	appendNamed(t, j, "web1/b")
	j.Close()
	b.Stop()
	if err := os.RemoveAll(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "jetstream"), os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	j = openNamed(t, startStore(t, dir), dir)
	events := func() int { return len(readAll(t, j, journal.Query{})) }
	appendNamed(t, j, "web1/a")
	if events() != 1 {
		t.Error("an event that is there was stored again")
	}
	appendNamed(t, j, "web1/b")
	if events() != 2 {
		t.Error("an event that is not there is taken for stored")
	}
}

func waitFile(t *testing.T, path string) []byte {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			return b
		}
	}
	t.Fatalf("%s is not written", path)
	return nil
}

// A start does not update a stream whose settings are right, since the server would read a
// block of it into memory; it updates one whose limits were changed.
func TestAStartUpdatesOnlyWhatWasChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	streams := [3]string{journal.Stream, "WAITING", "KV_mytable"}
	open := func(o journal.Options) [3]os.FileInfo {
		b := startStore(t, dir)
		defer b.Stop()
		j, err := journal.Open(t.Context(), b.Conn(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if _, err := journal.OpenQueue(t.Context(), b.Conn(), "WAITING", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Table(t.Context(), "mytable"); err != nil {
			t.Fatal(err)
		}
		var metas [3]os.FileInfo
		for i, stream := range streams {
			found, _ := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "meta.inf"))
			if len(found) != 1 {
				t.Fatalf("the stream %s has the files %v", stream, found)
			}
			if metas[i], err = os.Stat(found[0]); err != nil {
				t.Fatal(err)
			}
		}
		return metas
	}
	limits := journal.Options{MaxAge: time.Hour, MaxBytes: 64 << 20}
	first, again := open(limits), open(limits)
	for i, stream := range streams {
		if !os.SameFile(first[i], again[i]) || !first[i].ModTime().Equal(again[i].ModTime()) {
			t.Errorf("the stream %s was updated, and nothing of it has changed", stream)
		}
	}
	limits.MaxAge = time.Minute
	if changed := open(limits); os.SameFile(again[0], changed[0]) && again[0].ModTime().Equal(changed[0].ModTime()) {
		t.Error("the limits were changed, and the stream was not updated")
	}
}
