package upload_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
)

// stored is an entry as an attacker at another member writes it.
type stored struct {
	Minion string    `json:"minion"`
	Path   string    `json:"path"`
	Object string    `json:"object,omitempty"`
	Pieces int       `json:"pieces,omitempty"`
	Size   int64     `json:"size,omitempty"`
	SHA256 string    `json:"sha256,omitempty"`
	Time   time.Time `json:"time"`
}

func (m *master) table(name string) *journal.Table {
	m.t.Helper()
	table, err := m.journal.Table(clustertest.Starting(m.t), name)
	if err != nil {
		m.t.Fatal(err)
	}
	return table
}

// write stores an entry past all checks, under the key that belongs to it or another one, with its
// content.
func (m *master) write(key string, e stored, content ...string) {
	m.t.Helper()
	if key == "" {
		key = sum([]byte(e.Minion + "/" + e.Path))
	}
	text, err := json.Marshal(e)
	if err != nil {
		m.t.Fatal(err)
	}
	for n, piece := range content {
		err = errors.Join(err, m.table("pusheddata").Put(m.t.Context(), fmt.Sprint(e.Object, "/", n), []byte(piece)))
	}
	if err := errors.Join(err, m.table("pushed").Put(m.t.Context(), key, text)); err != nil {
		m.t.Fatal(err)
	}
}

// Whatever a member in the wrong hands writes into the tables: it reaches the other members' files of
// minions and nothing else, none of it appears unless it is whole, and what is stored after it is taken.
func TestEntriesOfAMemberReachNothingElse(t *testing.T) {
	_, list := start(t)
	evil, victim := list[0], list[1]
	victim.pushed("web1", "before", []byte("x"))
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": outside, "file": filepath.Join(outside, "evil")} {
		if err := os.Symlink(to, victim.path("web1", name)); err != nil {
			t.Fatal(err)
		}
	}
	const text = "evil"
	good := sum([]byte(text))
	for n, e := range []stored{
		{Minion: "..", Path: "evil"}, {Minion: "../..", Path: "evil"}, {Minion: "web1/../..", Path: "evil"}, {Minion: "", Path: "evil"}, {Minion: ".hidden", Path: "evil"},
		{Minion: "web1", Path: "../evil"}, {Minion: "web1", Path: "../../../evil"}, {Minion: "web1", Path: "/tmp/evil"}, {Minion: "web1", Path: "a/../../evil"}, {Minion: "web1", Path: ""},
		{Minion: "web1", Path: `..\evil`}, {Minion: "web1", Path: "link/evil"}, {Minion: "web1", Path: "evil\x00"},
	} {
		e.Object, e.Pieces, e.Size, e.SHA256 = fmt.Sprint("OUT", n), 1, int64(len(text)), good
		evil.write("", e, text)
	}
	half := stored{Minion: "web1", Pieces: 1, Size: int64(len(text)), SHA256: good}
	for path, change := range map[string]func(*stored){
		"evil-sum":    func(e *stored) { e.SHA256 = sum([]byte("other")) },
		"evil-nosum":  func(e *stored) { e.SHA256 = "../../evil" },
		"evil-short":  func(e *stored) { e.Size++ },
		"evil-long":   func(e *stored) { e.Size-- },
		"evil-pieces": func(e *stored) { e.Pieces = 1 << 40 },
		"evil-object": func(e *stored) { e.Object = "a/b" },
		"evil-less":   func(e *stored) { e.Size = -1 },
	} {
		e := half
		e.Path, e.Object = path, path
		change(&e)
		evil.write("", e, text)
	}
	other := half
	other.Path, other.Object = "evil-key", "KEY"
	evil.write(sum([]byte("web1/somewhere")), other, text)
	evil.write("", stored{Minion: "web1", Path: "../../evil"}) // removes
	evil.write("", stored{Minion: "web1", Path: "file", Object: "FILE", Pieces: 1, Size: int64(len(text)), SHA256: good}, text)
	for i, e := range []string{"", "null", "[]", "{", `{"minion":7}`} {
		if err := evil.table("pushed").Put(t.Context(), fmt.Sprint("k", i), []byte(e)); err != nil {
			t.Fatal(err)
		}
	}

	evil.pushed("web2", "after", []byte("x"))
	allHave(list, "web2", "after", []byte("x"))
	victim.has("web1", "file", []byte(text)) // in place of the link
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside are %v, %v", left, err)
	}
	err := filepath.WalkDir(victim.dir, func(path string, e fs.DirEntry, err error) error {
		if strings.Contains(e.Name(), "evil") {
			t.Errorf("%s was written", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(victim.dir, "..", "evil")); err == nil {
		t.Error("a file beside the directory was written")
	}
}

// A minion that uploads as much as it can, at all members at once, and the same file again and again,
// gets no more room than at a single master. Its files make no room for it anywhere until somebody
// removes one, at any member.
func TestAMinionCannotFillTheStore(t *testing.T) {
	_, list := start(t)
	var all sync.WaitGroup
	contents := make([]map[string][]byte, len(list))
	for i, m := range list {
		contents[i] = map[string][]byte{}
		all.Go(func() {
			for n := range 20 {
				name, content := fmt.Sprint(m.Name, n), filled(limit)
				err := m.push("evil", name, content)
				if errors.Is(err, fileserver.ErrFull) {
					return
				}
				if err != nil {
					t.Errorf("%s: %v", m.Name, err)
				}
				contents[i][name] = content
			}
			t.Errorf("%s takes 20 files of %d bytes", m.Name, limit)
		})
	}
	all.Wait()
	const each = limit / (256 << 10) // pieces
	const most = 10 + 1 + 3          // files
	if n := list[0].pieces(); n > most*each {
		t.Errorf("%d pieces are stored", n)
	}
	list[1].pushed("web1", "file", []byte("x"))
	for _, m := range list {
		for range 10 {
			if err := m.push("evil", "again", []byte("x")); !errors.Is(err, fileserver.ErrFull) {
				t.Errorf("%s: one more: %v", m.Name, err)
			}
		}
	}
	for _, of := range contents {
		for name, content := range of {
			list[2].has("evil", name, content)
			if err := os.Remove(list[2].path("evil", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	bustest.Until(t, "what was removed is gone", func() bool { return list[0].pieces() == 1 })
	for range most + 1 { // another member may learn of the last removals a moment later
		bustest.Until(t, "there is room at another member", func() bool { return list[0].push("evil", "again", filled(limit)) == nil })
	}
	bustest.Until(t, "what was replaced is gone", func() bool { return list[0].pieces() == 1+each })
}

// stalled is a file whose content stops after its first piece, until end is called.
type stalled struct {
	left int
	gone chan struct{}
}

func (s *stalled) Read(p []byte) (int, error) {
	if s.left == 0 {
		<-s.gone
		return 0, errors.New("the file has ended")
	}
	n := min(s.left, len(p))
	s.left -= n
	return n, nil
}

// Seek does nothing: the file is read once.
func (s *stalled) Seek(int64, int) (int64, error) { return 0, nil }

// stall begins to store a file of which only one piece comes.
func (m *master) stall(id salt.MinionID) (end func() error) {
	content := &stalled{left: 256 << 10, gone: make(chan struct{})}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	go func() {
		done <- m.files.Store(ctx, id, fileserver.Upload{Path: "stalled", Size: limit, SHA256: sum(nil), Time: time.Now()}, content)
	}()
	end = sync.OnceValue(func() error {
		defer cancel()
		close(content.gone)
		return <-done
	})
	m.t.Cleanup(func() { _ = end() })
	return end
}

// A member stores two files at a time, each of another minion, piece by piece: so files of many minions
// leave room for events. What is not stored completely is removed, also after a kill.
func TestUnfinishedFilesLeaveNothing(t *testing.T) {
	s, list := start(t)
	first, second, third := list[0].stall("web1"), list[0].stall("web2"), list[0].stall("web3")
	bustest.Until(t, "two pieces are stored", func() bool { return list[1].pieces() == 2 })
	for i := range 50 {
		if _, err := list[0].journal.Append(t.Context(), event.Event{Tag: "x", Data: json.RawMessage("1"), From: "web1"}, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := list[1].pieces(); n != 2 {
		t.Errorf("%d files are stored at a time, want 2", n)
	}
	list[1].pushed("web1", "elsewhere", []byte("x"))
	for _, end := range []func() error{first, second, third} {
		if err := end(); err == nil {
			t.Error("a file that did not come completely was stored")
		}
	}
	bustest.Until(t, "nothing is left but the other file", func() bool { return list[1].pieces() == 1 && list[1].stored("pushing-m1") == 0 })

	last := list[0].stall("web4")
	bustest.Until(t, "a piece is stored", func() bool { return list[1].pieces() == 2 })
	list[0].kill()
	if err := last(); err == nil {
		t.Error("a killed member has stored a file")
	}
	list[0].back(s)
	bustest.Until(t, "nothing is left but the other file", func() bool { return list[1].pieces() == 1 && list[1].stored("pushing-m1") == 0 })
	for _, m := range list {
		m.has("web4", "stalled", nil)
	}
}

// Only members reach the tables with the files.
func TestOnlyMembersReachTheFiles(t *testing.T) {
	_, list := start(t)
	list[0].pushed("web1", "secret", []byte("x"))
	allHave(list, "web1", "secret", []byte("x"))
	before, pieces := list[0].stored("pushed"), list[0].pieces()
	for _, role := range []bus.Role{bus.RoleMinion, bus.RoleCaller, bus.RoleUnaccepted, bus.RoleUser, bus.RoleClient} {
		c := list[1].As(t, role, salt.MinionID("evil"+string(role)))
		for _, table := range []string{"pushed", "pusheddata", "pushing-m1"} {
			sub, err := c.SubscribeSync("$KV." + table + ".>")
			if err != nil {
				t.Fatal(err)
			}
			for _, subject := range []string{"$KV." + table + ".x", "$JS.API.STREAM.PURGE.KV_" + table, "$JS.API.STREAM.DELETE.KV_" + table} {
				if err := c.Publish(subject, []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
			for _, what := range []string{"STREAM.INFO.", "STREAM.MSG.GET.", "DIRECT.GET.", "CONSUMER.CREATE."} {
				if m, err := c.Request("$JS.API."+what+"KV_"+table, []byte(`{"seq":1}`), 100*time.Millisecond); err == nil {
					t.Errorf("%s gets %s of %s: %.100q", role, what, table, m.Data)
				}
			}
			if err := c.Flush(); err != nil {
				t.Fatal(err)
			}
			list[1].pushed("web1", "secret", []byte("another"+string(role)+table))
			if m, err := sub.NextMsg(100 * time.Millisecond); err == nil {
				t.Errorf("%s hears %q", role, m.Subject)
			}
		}
	}
	bustest.Until(t, "the same is stored as before", func() bool { return list[0].stored("pushed") == before && list[0].pieces() == pieces })
}
