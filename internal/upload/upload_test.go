package upload_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upload"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
)

// limit is the largest file of these tests.
const limit = 1 << 20

// master is a member of a cluster that takes files.
type master struct {
	*bustest.Member
	t       *testing.T
	dir     string
	journal *journal.Journal
	uploads *fileserver.Uploads
	files   *upload.Files
	stop    func()
}

// start starts three members with empty directories.
func start(t *testing.T) (*bustest.System, []*master) {
	t.Helper()
	s, list := members(t)
	for _, m := range list {
		m.run()
	}
	return s, list
}

// members starts three members that take no files yet.
func members(t *testing.T) (*bustest.System, []*master) {
	t.Helper()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var list []*master
	for _, m := range s.Members {
		list = append(list, &master{Member: m, t: t, dir: t.TempDir()})
	}
	return s, list
}

// run opens what a member has above its bus, and follows until stop is called.
func (m *master) run() {
	m.t.Helper()
	m.journal = clustertest.Journal(m.t, m.Member)
	m.open()
	m.follow()
}

// follow lets the directory follow until stop is called.
func (m *master) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.files.Run(ctx) }()
	m.stop = sync.OnceFunc(func() { cancel(); <-done })
	m.t.Cleanup(func() { m.stop() })
}

func (m *master) open() {
	m.t.Helper()
	m.uploads = fileserver.NewUploads(m.dir, limit)
	var err error
	m.files, err = upload.Open(clustertest.Starting(m.t), upload.Options{Journal: m.journal, Dir: m.dir, Uploads: m.uploads, Log: m.Log.With("member", m.Name)})
	if err != nil {
		m.t.Fatal(m.Name, err)
	}
}

// end stops a member in good order; back brings it back.
func (m *master) end() {
	m.stop()
	m.journal.Close()
	m.Stop()
}

// kill ends a member as kill -9 does.
func (m *master) kill() {
	m.Kill(m.t)
	m.stop()
	m.journal.Close()
}

func (m *master) back(s *bustest.System) {
	s.Rejoin(m.Member)
	m.Start(m.t)
	s.Linked(m.t)
	m.run()
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// push uploads a file at a member, in pieces as a minion does.
func (m *master) push(id salt.MinionID, name string, content []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return m.pushWithin(ctx, id, name, content)
}

func (m *master) pushWithin(ctx context.Context, id salt.MinionID, name string, content []byte) error {
	const size = 256 << 10
	p := fileserver.Piece{Path: name, Upload: rand.Text()}
	for int(p.Offset) == 0 || int(p.Offset) < len(content) {
		p.Data = content[p.Offset:min(len(content), int(p.Offset)+size)]
		if int(p.Offset)+len(p.Data) == len(content) {
			p.SHA256 = sum(content)
		}
		if err := m.uploads.Put(ctx, id, p); err != nil || p.SHA256 != "" {
			return err
		}
		p.Offset += size
	}
	return nil
}

// pushed uploads a file that must be taken.
func (m *master) pushed(id salt.MinionID, name string, content []byte) {
	m.t.Helper()
	if err := m.push(id, name, content); err != nil {
		m.t.Fatalf("%s: %s of %s: %v", m.Name, name, id, err)
	}
}

func (m *master) path(id salt.MinionID, name string) string {
	return filepath.Join(m.dir, string(id), "files", name)
}

// has waits until the directory of a member has a file; nil is none.
func (m *master) has(id salt.MinionID, name string, want []byte) {
	m.t.Helper()
	bustest.Until(m.t, fmt.Sprintf("%s has %s of %s with %d bytes", m.Name, name, id, len(want)), func() bool {
		got, err := os.ReadFile(m.path(id, name))
		if want == nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		return err == nil && bytes.Equal(got, want)
	})
}

func allHave(list []*master, id salt.MinionID, name string, want []byte) {
	for _, m := range list {
		m.t.Helper()
		m.has(id, name, want)
	}
}

// pieces returns how many pieces of files are in the store.
func (m *master) pieces() uint64 { return m.stored("pusheddata") }

// stored counts the entries of a table, with the marks of those that were deleted.
func (m *master) stored(table string) uint64 {
	m.t.Helper()
	js, err := jetstream.New(m.Conn())
	if err != nil {
		m.t.Fatal(err)
	}
	var info *jetstream.StreamInfo
	bustest.Until(m.t, "the table "+table+" answers", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, "KV_"+table)
		if err == nil {
			info, err = s.Info(ctx, jetstream.WithSubjectFilter(">"))
		}
		return err == nil
	})
	delete(info.State.Subjects, "$KV."+table+".=last") // with which the table ends
	return uint64(len(info.State.Subjects))
}

func filled(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.Read(b) // it never fails
	return b
}

// What a minion uploads at one member all have: new files, other versions of them, and large ones; and
// what somebody removes at one member is removed at all. Nothing is left in the store of what was
// replaced.
func TestAFileIsAtAllMembers(t *testing.T) {
	_, list := start(t)
	big := filled(limit)
	list[0].pushed("web1", "etc/fstab", []byte("one"))
	list[1].pushed("web1", "big", big)
	list[2].pushed("web2", "empty", []byte{})
	allHave(list, "web1", "etc/fstab", []byte("one"))
	allHave(list, "web1", "big", big)
	allHave(list, "web2", "empty", []byte{})

	list[1].pushed("web1", "etc/fstab", []byte("another one"))
	allHave(list, "web1", "etc/fstab", []byte("another one"))
	if info, err := os.Stat(list[2].path("web1", "etc/fstab")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("at another member: %v, %v; want mode 0600", info, err)
	}

	if err := os.Remove(list[2].path("web1", "big")); err != nil {
		t.Fatal(err)
	}
	allHave(list, "web1", "big", nil)
	bustest.Until(t, "one piece is left", func() bool { return list[0].pieces() == 1 })
	for _, m := range list {
		bustest.Until(t, m.Name+" has ended its changes", func() bool { return m.stored("pushing-"+m.Name) == 0 })
	}
}

// A member that is killed right after a minion heard that its file was taken takes nothing along, even
// if no other member has put it into its directory yet.
func TestTheKillOfTheReceiverLosesNoFile(t *testing.T) {
	s, list := start(t)
	list[1].stop()
	list[2].stop()
	want := map[string][]byte{}
	for n := range 20 {
		name := fmt.Sprint("f", n)
		want[name] = filled(300 << 10)
		list[0].pushed("web1", name, want[name])
	}
	list[0].kill()
	for _, m := range list[1:] {
		m.has("web1", "f0", nil)
		m.open()
		m.follow()
	}
	for name, content := range want {
		allHave(list[1:], "web1", name, content)
	}
	list[1].pushed("web1", "later", []byte("x")) // when the others have elected leaders
	list[0].back(s)
	allHave(list, "web1", "later", []byte("x"))
}

// A minion gets no answer from one member, and uploads the path at another one before the first member hears that its
// entry was stored, and replaced. Of both contents, which are both taken, the later one is at all members, with its pieces.
func TestAFileIsUploadedElsewhereBeforeItsAnswer(t *testing.T) {
	_, list := members(t)
	a, b := list[0], list[1]
	first, second := filled(300<<10), filled(400<<10)
	a.journal = clustertest.Journal(t, a.Member)
	a.open()
	a.files.LoseAnswer(func() {
		b.pushed("web1", "doc", second)
		allHave(list[1:], "web1", "doc", second)
	})
	a.follow()
	for _, m := range list[1:] {
		m.run()
	}
	b.pushed("web2", "doc", []byte("x"))
	allHave(list, "web2", "doc", []byte("x"))
	a.pushed("web1", "doc", first)
	allHave(list, "web1", "doc", first)
	bustest.Until(t, "what was replaced is gone", func() bool { return b.pieces() == 3 })
	for _, m := range list {
		bustest.Until(t, "no change is under way", func() bool { return b.stored("pushing-"+m.Name) == 0 })
	}
}

// A member that is cut off takes no file, and says why within a second. It gets what it has missed when it
// is linked again, also what was removed and replaced.
func TestAMemberThatIsCutOffCatchesUp(t *testing.T) {
	s, list := start(t)
	list[0].pushed("web1", "old", []byte("1"))
	list[0].pushed("web1", "gone", []byte("1"))
	allHave(list, "web1", "old", []byte("1"))
	allHave(list, "web1", "gone", []byte("1"))
	s.Isolate(t, list[2].Member)
	bustest.Until(t, "the member knows that it is cut off", func() bool { return list[2].journal.Err() != nil })
	begun := time.Now()
	err := list[2].push("web1", "lost", []byte("1"))
	if !errors.Is(err, journal.ErrStore) || !strings.Contains(err.Error(), "most members of the cluster are not reached") || time.Since(begun) > time.Second {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	list[0].pushed("web1", "old", []byte("2"))
	list[1].pushed("web1", "new", []byte("2"))
	if err := os.Remove(list[0].path("web1", "gone")); err != nil {
		t.Fatal(err)
	}
	allHave(list[:2], "web1", "gone", nil)
	list[2].has("web1", "gone", []byte("1"))
	s.Rejoin(list[2].Member)
	s.Linked(t)
	allHave(list, "web1", "old", []byte("2"))
	allHave(list, "web1", "new", []byte("2"))
	allHave(list, "web1", "gone", nil)
	for _, m := range list {
		if _, err := os.Stat(m.path("web1", "lost")); err == nil {
			t.Errorf("%s has the file that was refused", m.Name)
		}
	}
}

// A member that does not run while files are stored, replaced and removed has the same as the others
// after its start. What its directory lacks then it gets again, whether a disk has lost it or somebody has
// removed it: that cannot be told apart.
func TestAMemberThatWasStoppedCatchesUp(t *testing.T) {
	s, list := start(t)
	for _, name := range []string{"old", "gone", "byhand", "dir/kept"} {
		list[0].pushed("web1", name, []byte("1"))
		allHave(list, "web1", name, []byte("1"))
	}
	list[2].noted()
	list[2].end()
	list[0].pushed("web1", "old", []byte("2"))
	list[0].pushed("web1", "new", []byte("2"))
	list[0].noted() // else what is removed may come back: its member did not know yet that it was there
	if err := errors.Join(os.Remove(list[0].path("web1", "gone")), os.Remove(list[2].path("web1", "byhand"))); err != nil {
		t.Fatal(err)
	}
	allHave(list[:2], "web1", "gone", nil)
	list[2].back(s)
	allHave(list, "web1", "old", []byte("2"))
	allHave(list, "web1", "new", []byte("2"))
	allHave(list, "web1", "gone", nil)
	allHave(list, "web1", "byhand", []byte("1"))

	list[2].end()
	if err := os.RemoveAll(list[2].dir); err != nil {
		t.Fatal(err)
	}
	list[2].back(s)
	for name, want := range map[string]string{"old": "2", "new": "2", "dir/kept": "1"} {
		allHave(list, "web1", name, []byte(want))
	}

	list[2].noted()
	list[2].end()
	if err := os.RemoveAll(filepath.Join(list[2].dir, "web1")); err != nil { // all of a minion, and the note is there
		t.Fatal(err)
	}
	list[0].pushed("web1", "later", []byte("3")) // so it makes the directory before it looks what is missing
	list[2].back(s)
	for name, want := range map[string]string{"old": "2", "new": "2", "dir/kept": "1", "later": "3"} {
		allHave(list, "web1", name, []byte(want))
	}
}

// TestALostDirectoryRemovesNothing: while a member runs, the directory of a minion is lost, and made anew
// by the next file of the minion before anybody has looked. Nothing is removed anywhere. Then a file is removed by hand, and
// that counts; many at once do not.
func TestALostDirectoryRemovesNothing(t *testing.T) {
	_, list := start(t)
	const many = 60 // more than count as removed by hand at once
	for n := range many {
		list[0].pushed("web1", fmt.Sprint(n), []byte("1"))
	}
	for n := range many {
		allHave(list, "web1", fmt.Sprint(n), []byte("1"))
	}
	for at, m := range list {
		if err := os.Rename(filepath.Join(m.dir, "web1"), filepath.Join(t.TempDir(), "lost")); err != nil { // not RemoveAll: the member may be writing there
			t.Fatal(err)
		}
		list[at%2].pushed("web1", fmt.Sprint("new", at), []byte("2")) // at this member, and at another one
		for n := range many {
			allHave(list, "web1", fmt.Sprint(n), []byte("1"))
		}
	}
	for n := range many - 1 {
		if err := os.Remove(list[1].path("web1", fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
	}
	for n := range many {
		allHave(list, "web1", fmt.Sprint(n), []byte("1"))
	}
	if err := os.Remove(list[1].path("web1", "0")); err != nil {
		t.Fatal(err)
	}
	allHave(list, "web1", "0", nil)
}

// noted waits until a member has noted how far it follows.
func (m *master) noted() {
	m.t.Helper()
	js, err := jetstream.New(m.Conn())
	if err != nil {
		m.t.Fatal(err)
	}
	bustest.Until(m.t, m.Name+" has noted how far it follows", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, "KV_pushed")
		if err != nil {
			return false
		}
		text, err := os.ReadFile(filepath.Join(m.dir, ".follows"))
		return err == nil && strings.Contains(string(text), fmt.Sprintf(`"revision":%d}`, s.CachedInfo().State.LastSeq))
	})
}
