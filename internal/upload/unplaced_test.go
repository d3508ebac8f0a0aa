package upload_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// storeOne stores a file past the directory of this member, as if it came to another one at the same time.
func (m *master) storeOne(id salt.MinionID, name, text string) error {
	c := fileserver.Upload{Path: name, Size: int64(len(text)), SHA256: sum([]byte(text)), Time: time.Now()}
	return m.files.Store(m.t.Context(), id, c, bytes.NewReader([]byte(text)))
}

// entryOf is the entry of a small file as a member stores it that knows of no other.
func entryOf(name, text string) stored {
	return stored{Minion: "web1", Path: name, Object: sum([]byte(name))[:20], Pieces: 1, Size: int64(len(text)), SHA256: sum([]byte(text)), Time: time.Now()}
}

// TestFilesThatExcludeEachOther: a file is refused before it is stored if it could not be beside one that the
// masters have. Two that came to two members at the same moment are both stored: the one that has no room is in
// nobody's way, and gets its place when somebody removes the other one.
func TestFilesThatExcludeEachOther(t *testing.T) {
	_, list := start(t)
	list[0].pushed("web1", "x", []byte("file"))
	list[0].pushed("web1", "d/e/f", []byte("deep"))
	allHave(list, "web1", "x", []byte("file"))
	allHave(list, "web1", "d/e/f", []byte("deep"))
	for _, m := range list {
		for _, name := range []string{"x/y", "x/y/z", "d", "d/e", "d/e/f/g"} {
			if err := m.storeOne("web1", name, "no"); !errors.Is(err, fileserver.ErrPath) {
				t.Errorf("%s stores %s: %v", m.Name, name, err)
			}
			if err := m.push("web1", name, []byte("no")); err == nil {
				t.Errorf("%s takes %s", m.Name, name)
			}
		}
		for _, name := range []string{"xy", "d/e/g"} {
			m.pushed("web1", name, []byte("beside"))
		}
		m.pushed("web2", "x/y", []byte("of another"))
	}
	if n := list[0].pieces(); n != 5 {
		t.Errorf("%d pieces are stored", n)
	}
	for _, name := range []string{strings.Repeat("n", 256), strings.Repeat("n", 256) + "/x"} {
		if err := list[1].push("web1", name, []byte("no")); !errors.Is(err, fileserver.ErrPath) {
			t.Errorf("a name that no directory can have: %v", err)
		}
	}

	list[0].write("", entryOf("x/y", "second"), "second")
	list[0].write("", entryOf("d", "second"), "second")
	list[2].pushed("web1", "after", []byte("1"))
	allHave(list, "web1", "after", []byte("1"))
	allHave(list, "web1", "x", []byte("file"))
	if err := errors.Join(os.Remove(list[1].path("web1", "x")), os.Remove(list[1].path("web1", "d/e/f")), os.Remove(list[1].path("web1", "d/e/g"))); err != nil {
		t.Fatal(err)
	}
	allHave(list, "web1", "x/y", []byte("second"))
	allHave(list, "web1", "d", []byte("second"))
}

// TestAFileThatNobodyCanPlaceIsRemoved: its content is not what was promised, or it is not there. An operator
// removes it at any member, and also a file that all have.
func TestAFileThatNobodyCanPlaceIsRemoved(t *testing.T) {
	_, list := start(t)
	list[0].pushed("web1", "good", []byte("1"))
	allHave(list, "web1", "good", []byte("1"))
	wrong := entryOf("wrong", "right")
	list[0].write("", wrong, "wrong")
	list[0].write("", entryOf("gone", "right"))
	list[1].pushed("web1", "after", []byte("2"))
	allHave(list, "web1", "after", []byte("2"))
	for at, name := range []string{"wrong", "gone", "good"} {
		if err := list[at].files.Remove(t.Context(), "web1", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	bustest.Until(t, "the content of one file is left", func() bool { return list[0].pieces() == 1 })
	allHave(list, "web1", "good", nil)
	for _, m := range list {
		m.noted()
		for _, name := range []string{"wrong", "good", "never", "../../x", ""} {
			if err := m.files.Remove(t.Context(), "web1", name); !errors.Is(err, fileserver.ErrNotFound) {
				t.Errorf("%s removes %s again: %v", m.Name, name, err)
			}
		}
	}
	list[2].pushed("web1", "wrong", []byte("3"))
	allHave(list, "web1", "wrong", []byte("3"))
}

// TestRemovedFilesAreForgotten: what was removed long ago is not remembered for ever. A member that was away for
// as long has what the others have, and they what only this one has.
func TestRemovedFilesAreForgotten(t *testing.T) {
	s, list := start(t)
	const day = 24 * time.Hour
	for _, name := range []string{"kept", "old", "young"} {
		list[0].pushed("web1", name, []byte("1"))
		allHave(list, "web1", name, []byte("1"))
	}
	list[2].noted()
	list[2].end()
	uploaded := time.Now().Add(-35 * day)
	for _, name := range []string{"old", "young"} {
		if err := os.Chtimes(list[2].path("web1", name), uploaded, uploaded); err != nil {
			t.Fatal(err)
		}
	}
	list[0].write("", stored{Minion: "web1", Path: "old", Time: time.Now().Add(-31 * day)})
	list[0].write("", stored{Minion: "web1", Path: "young", Time: time.Now().Add(-29 * day)})
	allHave(list[:2], "web1", "old", nil)
	allHave(list[:2], "web1", "young", nil)
	bustest.Until(t, "the one that was removed long ago is forgotten", func() bool { return list[0].stored("pushed") == 2 })
	list[0].pushed("web1", "new", []byte("2"))

	list[2].age(40 * day)
	list[2].back(s)
	for name, want := range map[string][]byte{"kept": []byte("1"), "old": []byte("1"), "young": nil, "new": []byte("2")} {
		allHave(list, "web1", name, want)
	}
	list[1].pushed("web1", "old", []byte("3")) // all know of it as of any other
	allHave(list, "web1", "old", []byte("3"))
}

// age makes the note of a member that does not run as old as that.
func (m *master) age(d time.Duration) {
	m.t.Helper()
	file := filepath.Join(m.dir, ".follows")
	var note map[string]any
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	note["time"] = time.Now().Add(-d)
	if text, err = json.Marshal(note); err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		m.t.Fatal(fmt.Errorf("%s: %w", file, err))
	}
}
