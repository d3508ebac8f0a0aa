package override_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/override"
)

// open reads a setting whose configuration has the entries of text, over the file in dir.
func open(t *testing.T, dir, text string) (*override.Setting, error) {
	t.Helper()
	path := filepath.Join(dir, "minion")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := config.ReadRules(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &config.Minion{}
	cfg.ConfigDir, cfg.DefaultInclude = dir, "minion.d/*.conf"
	return override.New(cfg, "schedule", "_schedule.conf", "# head\n").Read(l)
}

func mustOpen(t *testing.T, dir, text string) *override.Setting {
	t.Helper()
	s, err := open(t, dir, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOnlyDifferencesAreKept: an edit of the configuration is in force but for the entries
// that were changed, and those are named, with both files.
func TestOnlyDifferencesAreKept(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, "a: {n: 1}\nb: {n: 1}\nc: {n: 1}\n")
	now := s.Entries()
	now["a"] = map[string]any{"n": int64(9)}
	delete(now, "b")
	now["d"] = map[string]any{"n": int64(4)}
	if err := s.Keep(now); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "minion.d", "_schedule.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "# head\n") || strings.Contains(string(text), "c:") {
		t.Errorf("the file is %s", text)
	}

	s = mustOpen(t, dir, "a: {n: 2}\nb: {n: 2}\nc: {n: 2}\n")
	want := map[string]any{"a": map[string]any{"n": int64(9)}, "c": map[string]any{"n": int64(2)}, "d": map[string]any{"n": int64(4)}}
	if got := s.Entries(); !reflect.DeepEqual(got, want) {
		t.Errorf("in force are %v, want %v", got, want)
	}
	var reported []string
	s.TellShadowed(func(name, configuredAt, changes string) {
		reported = append(reported, name+" "+strings.TrimPrefix(configuredAt, dir)+" "+strings.TrimPrefix(changes, dir))
	})
	slices.Sort(reported)
	if want := []string{"a /minion:1 /minion.d/_schedule.conf", "b /minion:2 /minion.d/_schedule.conf"}; !slices.Equal(reported, want) {
		t.Errorf("shadowed are %q, want %q", reported, want)
	}
	origins := s.Origins(s.Entries())
	if o := origins["c"]; o.Place != filepath.Join(dir, "minion")+":3" || o.Configured.V != nil {
		t.Errorf("c comes from %+v", o)
	}
	if o := origins["d"]; o.Place != file {
		t.Errorf("d comes from %+v", o)
	}
	if o := origins["b"]; !o.Deleted {
		t.Errorf("b comes from %+v", o)
	}

	if err := s.Forget(); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(s.Entries())); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("after it was forgotten there are %q", got)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
	if err := s.Forget(); err != nil {
		t.Errorf("forget nothing: %v", err)
	}
}

// TestWhatIsNotStoredStays when the configuration is read again, but for what was edited.
func TestWhatIsNotStoredStays(t *testing.T) {
	n := func(i int64) map[string]any { return map[string]any{"n": i} }
	dir := t.TempDir()
	s := mustOpen(t, dir, "a: {n: 1}\nb: {n: 1}\nc: {n: 1}\nd: {n: 1}\n")
	now := s.Entries()
	now["e"] = n(5)
	if err := s.Keep(now); err != nil {
		t.Fatal(err)
	}
	now["a"], now["b"], now["f"], now["g"] = n(9), n(9), nil, n(9)
	delete(now, "c")
	delete(now, "e")
	after := mustOpen(t, dir, "a: {n: 1}\nb: {n: 2}\nc: {n: 1}\nd: {n: 2}\ng: {n: 2}\n")
	want := map[string]any{"a": n(9), "b": n(2), "d": n(2), "f": nil, "g": n(2)}
	if got := after.After(s, now); !reflect.DeepEqual(got, want) {
		t.Errorf("in force are %v, want %v", got, want)
	}
	if got := after.After(nil, nil); !reflect.DeepEqual(got, after.Entries()) {
		t.Errorf("at the start %v are in force", got)
	}
}

// TestAMistakeInTheFileIsReportedWithItsLine and is not a reason to drop what functions changed.
func TestAMistakeInTheFileIsReportedWithItsLine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "minion.d", "_schedule.conf")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"schedule: [a]\n": "schedule is not a dictionary", "schedule: {a: 1}\nschedule: {b: 1}\n": "schedule"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := open(t, dir, "a: {n: 1}\n")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestNoFolderForChanges: without default_include nothing is kept, and that is said.
func TestNoFolderForChanges(t *testing.T) {
	s, err := override.New(&config.Minion{}, "beacons", "_beacons.conf", "").Read(config.Located{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(map[string]any{"a": 1}); err == nil || !strings.Contains(err.Error(), "default_include is empty") {
		t.Errorf("keep: %v", err)
	}
	if got := s.Entries(); len(got) != 0 {
		t.Errorf("in force are %v", got)
	}
}
