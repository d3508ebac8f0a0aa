package job

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

func openSeen(t *testing.T, path string) *Seen {
	t.Helper()
	s, err := OpenSeen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func first(t *testing.T, s *Seen, jid salt.JID, want bool) {
	t.Helper()
	if got, err := s.First(jid); err != nil || got != want {
		t.Errorf("First(%s) = %v, %v; want %v", jid, got, err, want)
	}
}

func jidAt(n int) salt.JID { return salt.NewJID(noon.Add(time.Duration(n) * time.Microsecond)) }

func TestSeenOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	s := openSeen(t, path)
	for n := range 100 {
		first(t, s, jidAt(n), true)
		first(t, s, jidAt(n), false)
	}
	// Not closed: a process that is killed does not close anything.
	s = openSeen(t, path)
	for n := range 100 {
		first(t, s, jidAt(n), false)
	}
	first(t, s, jidAt(100), true)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A power cut leaves half a line, or blocks of zeros.
func TestSeenReadsWhatIsLeft(t *testing.T) {
	for name, tail := range map[string]string{
		"half a line":     "2026112111334428",
		"a line of zeros": strings.Repeat("\x00", 200<<10),
		"junk":            "\xff\xfe\nnot a jid\n20261121113344286549x\n",
		"no line end":     string(jidAt(7)),
		"empty lines":     "\n\n\n",
	} {
		path := filepath.Join(t.TempDir(), "seen")
		if err := os.WriteFile(path, []byte(string(jidAt(1))+"\n"+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		s := openSeen(t, path)
		first(t, s, jidAt(1), false)
		first(t, s, jidAt(7), name != "no line end")
		first(t, s, jidAt(2), true)
		s.Close()
		s = openSeen(t, path) // the tail has not swallowed what came after it
		for _, n := range []int{1, 2, 7} {
			first(t, s, jidAt(n), false)
		}
	}
}

// A record that could not be written is an error and no permission to run, and it
// spoils none that come later.
func TestSeenAfterAFailedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	s := openSeen(t, path)
	first(t, s, jidAt(1), true)
	s.file.Close() // as a full disk would fail it
	if ok, err := s.First(jidAt(2)); ok || !errors.Is(err, os.ErrClosed) {
		t.Errorf("a record that was not written: %v, %v", ok, err)
	}
	first(t, s, jidAt(2), true)
	first(t, s, jidAt(3), true)
	s = openSeen(t, path)
	for n := 1; n <= 3; n++ {
		first(t, s, jidAt(n), false)
	}
}

func TestSeenIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	s := openSeen(t, path)
	const n = 2*maxSeen + 10
	for i := range n {
		if ok, err := s.First(jidAt(i)); !ok || err != nil {
			t.Fatalf("job %d: %v, %v", i, ok, err)
		}
	}
	if len(s.jids) > 2*maxSeen || len(s.jids) < maxSeen || len(s.jids) != len(s.order) {
		t.Errorf("%d jobs are remembered, %d in order", len(s.jids), len(s.order))
	}
	for i := n - maxSeen; i < n; i += 97 {
		first(t, s, jidAt(i), false)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2*maxSeen*21 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	s = openSeen(t, path)
	first(t, s, jidAt(n-1), false)
}

func TestSeenOnceAmongMany(t *testing.T) {
	s := openSeen(t, filepath.Join(t.TempDir(), "seen"))
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for n := range 50 {
				if ok, err := s.First(jidAt(n)); err != nil {
					t.Error(err)
				} else if ok {
					won.Add(1)
				}
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
	if won.Load() != 50 {
		t.Errorf("50 jobs were started %d times", won.Load())
	}
}

func TestSeenUnreadable(t *testing.T) {
	if _, err := OpenSeen(t.TempDir(), false); err == nil {
		t.Error("a folder was read as the jobs seen")
	}
	if _, err := OpenSeen(filepath.Join(t.TempDir(), "missing", "seen"), false); err == nil {
		t.Error("a file in no folder")
	}
}

// With always a job that was recorded is on the disk, or it is not begun.
func TestSeenIsSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	s, err := OpenSeen(path, true)
	if err != nil {
		t.Fatal(err)
	}
	first(t, s, "20260101000000000001", true)
	// A pipe takes what is written, and cannot be synced.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.file.Close()
	s.file = w
	if ok, err := s.First("20260101000000000002"); ok || err == nil {
		t.Errorf("a job that is not on the disk is begun: %v, %v", ok, err)
	}
	// The system tells a failed sync once. What was written before it is written again.
	first(t, s, "20260101000000000003", true)
	if s.file == w {
		t.Error("the file that could not be synced is in use")
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "20260101000000000001\n") || !strings.HasSuffix(string(text), "20260101000000000003\n") {
		t.Errorf("the file that follows has %q, %v", text, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestAJobThatWasNotRecordedIsSeenOnce: a job that comes again after its record could not be synced is there once, so that the
// newest half of the set is not forgotten with the oldest.
func TestAJobThatWasNotRecordedIsSeenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	s, err := OpenSeen(path, true)
	if err != nil {
		t.Fatal(err)
	}
	first(t, s, jidAt(1), true)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.file.Close()
	s.file = w
	if ok, err := s.First(jidAt(2)); ok || err == nil {
		t.Errorf("a job that is not on the disk is begun: %v, %v", ok, err)
	}
	first(t, s, jidAt(3), true)
	first(t, s, jidAt(2), true)
	if want := []salt.JID{jidAt(1), jidAt(3), jidAt(2)}; !slices.Equal(s.order, want) || len(s.jids) != 3 {
		t.Errorf("seen are %v, want %v", s.order, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = openSeen(t, path)
	first(t, s, jidAt(2), false)
}

// What could not be synced is written again when the set is closed, or that is told.
func TestClosedAfterAFailedSync(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSeen(filepath.Join(dir, "seen"), false)
	if err != nil {
		t.Fatal(err)
	}
	first(t, s, "20260101000000000001", true)
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.file.Close()
	s.file = w
	s.syncSoon()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil {
		t.Error("what is not on the disk is closed without a word")
	}
}
