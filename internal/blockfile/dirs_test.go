package blockfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestAStoreThatCannotBeListed: streams whose directory cannot be read do not count as removed: nothing of the
// store is then said to be synced, whole or closed in good order.
func TestAStoreThatCannotBeListed(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"the store": "jetstream", "an account": "jetstream/$G/streams", "a stream": "jetstream/$G/streams/EVENTS"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, at)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Base(path), path); err != nil { // to itself
				t.Skip("no symbolic links: ", err)
			}
			state := State{High: map[string]uint64{"EVENTS": 1}, Rewrite: map[string][]int{"EVENTS": {1}}, Boot: boot()}
			for what, do := range map[string]func() error{
				"a sync":          func() error { return NewSyncer(dir).Sync("EVENTS") },
				"a sync of all":   func() error { return NewSyncer(dir).All(t.Context()) },
				"what is stored":  func() error { return NewSyncer(dir).Stored() },
				"an orderly stop": func() error { return state.Leave(dir) },
				"a check":         func() error { _, err := Checker{Dir: dir}.Check(); return err },
				"the learner":     func() error { return NewLearner(dir, func() error { return nil }).Learn() },
				"a skip":          func() error { return SkipTo(dir, "EVENTS", 3) },
				"a start":         func() error { _, _, err := Recover(dir); return err },
			} {
				if err := do(); err == nil || errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := os.Stat(statePath(dir)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a state was written: %v", err)
			}
		})
	}
}

// TestAStoreThatIsNotThereYet: a first start finds nothing, and what somebody has put beside the streams is none.
func TestAStoreThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, files := range [][]string{nil, {"jetstream/a note", "jetstream/$G/streams/another one"}} {
		for _, one := range files {
			path := filepath.Join(dir, one)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := streamDirs(dir); err != nil || len(found) > 0 {
			t.Errorf("%q, %v", found, err)
		}
		if _, err := folderOf(dir, "EVENTS"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}
