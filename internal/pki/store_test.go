package pki

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func submit(t testing.TB, s *Store, id salt.MinionID, key PublicKey, want State) {
	t.Helper()
	if got, err := s.Submit(id, key); err != nil || got != want {
		t.Fatalf("Submit(%s) = %v, %v; want %v", id, got, err, want)
	}
}

func wantState(t testing.TB, s *Store, id salt.MinionID, key PublicKey, want State) {
	t.Helper()
	if got, err := s.Lookup(id, key); err != nil || got != want {
		t.Errorf("Lookup(%s) = %v, %v; want %v", id, got, err, want)
	}
}

// story returns the store as lines "id state", sorted.
func story(t testing.TB, s *Store) string {
	t.Helper()
	entries, problems, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%s %s", e.ID, e.State))
	}
	for _, p := range problems {
		lines = append(lines, "problem "+filepath.Base(p.Path))
	}
	return strings.Join(lines, ", ")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func entryOf(id salt.MinionID, state State, key PublicKey) Entry {
	return Entry{ID: id, State: state, Key: key}
}

func TestStateZeroValue(t *testing.T) {
	var s State
	if s == Accepted || s.String() != "unknown" || State(99).String() != "unknown" || State(-1).String() != "unknown" {
		t.Errorf("zero state is %v", s)
	}
}

func TestLifeOfAKey(t *testing.T) {
	s, key := newStore(t), newKey(t).Public()
	wantState(t, s, "web1", key, Unknown)
	submit(t, s, "web1", key, Pending)
	submit(t, s, "web1", key, Pending)
	must(t, s.Accept(entryOf("web1", Pending, key)))
	wantState(t, s, "web1", key, Accepted)
	must(t, s.Accept(entryOf("web1", Accepted, key)))
	submit(t, s, "web1", key, Accepted)
	must(t, s.Reject(entryOf("web1", Accepted, key)))
	wantState(t, s, "web1", key, Rejected)
	submit(t, s, "web1", key, Rejected)
	must(t, s.Accept(entryOf("web1", Rejected, key)))
	wantState(t, s, "web1", key, Accepted)
	must(t, s.Delete(entryOf("web1", Accepted, key)))
	wantState(t, s, "web1", key, Unknown)
	submit(t, s, "web1", key, Pending)
	if got := story(t, s); got != "web1 pending" {
		t.Errorf("at the end: %s", got)
	}
}

func TestOtherKeyUnderAKnownID(t *testing.T) {
	for _, state := range []State{Pending, Accepted, Rejected} {
		t.Run(state.String(), func(t *testing.T) {
			s, key, other := newStore(t), newKey(t).Public(), newKey(t).Public()
			submit(t, s, "web1", key, Pending)
			switch state {
			case Accepted:
				must(t, s.Accept(entryOf("web1", Pending, key)))
			case Rejected:
				must(t, s.Reject(entryOf("web1", Pending, key)))
			}
			wantState(t, s, "web1", other, Denied)
			submit(t, s, "web1", other, Denied)
			submit(t, s, "web1", other, Denied)
			wantState(t, s, "web1", key, state)
			entries, _, _ := s.List()
			if len(entries) != 2 {
				t.Fatalf("stored: %s", story(t, s))
			}
			must(t, s.Delete(entryOf("web1", Denied, other)))
			wantState(t, s, "web1", key, state)
		})
	}
}

// TestReusedID is the reuse of a deleted minion's id by a new machine: the old
// key must not profit from it.
func TestReusedID(t *testing.T) {
	s, old, fresh := newStore(t), newKey(t).Public(), newKey(t).Public()
	submit(t, s, "web1", old, Pending)
	must(t, s.Accept(entryOf("web1", Pending, old)))
	must(t, s.Delete(entryOf("web1", Accepted, old)))
	submit(t, s, "web1", fresh, Pending)
	must(t, s.Accept(entryOf("web1", Pending, fresh)))
	wantState(t, s, "web1", old, Denied)
	submit(t, s, "web1", old, Denied)
	wantState(t, s, "web1", fresh, Accepted)
}

func TestAcceptDeniedKey(t *testing.T) {
	s, key, other := newStore(t), newKey(t).Public(), newKey(t).Public()
	submit(t, s, "web1", key, Pending)
	must(t, s.Accept(entryOf("web1", Pending, key)))
	submit(t, s, "web1", other, Denied)
	err := s.Accept(entryOf("web1", Denied, other))
	if !errors.Is(err, ErrTaken) || !strings.Contains(salt.Hint(err), "salt-key -d web1@"+key.SHA256()) {
		t.Errorf("Accept = %v (hint: %s); want ErrTaken", err, salt.Hint(err))
	}
	wantState(t, s, "web1", key, Accepted)
	wantState(t, s, "web1", other, Denied)
	must(t, s.Delete(entryOf("web1", Accepted, key)))
	wantState(t, s, "web1", other, Denied)
	must(t, s.Accept(entryOf("web1", Denied, other)))
	wantState(t, s, "web1", other, Accepted)
	wantState(t, s, "web1", key, Denied)
}

func TestRejectingAnIntruderKeepsTheMinion(t *testing.T) {
	s, key, other := newStore(t), newKey(t).Public(), newKey(t).Public()
	submit(t, s, "web1", key, Pending)
	must(t, s.Accept(entryOf("web1", Pending, key)))
	submit(t, s, "web1", other, Denied)
	must(t, s.Reject(entryOf("web1", Denied, other)))
	wantState(t, s, "web1", key, Accepted)
	wantState(t, s, "web1", other, Rejected)
	must(t, s.Reject(entryOf("web1", Accepted, key)))
	if got := story(t, s); got != "web1 rejected, web1 rejected" {
		t.Errorf("at the end: %s", got)
	}
}

func TestManyDeniedKeys(t *testing.T) {
	s := newStore(t)
	id := salt.MinionID("u@" + strings.Repeat("w", salt.MaxMinionID-2)) // its numbered names are as long as names get
	submit(t, s, id, newKey(t).Public(), Pending)
	var keys []PublicKey
	for range MaxRefused {
		keys = append(keys, newKey(t).Public())
		submit(t, s, id, keys[len(keys)-1], Denied)
	}
	if state, err := s.Submit(id, newKey(t).Public()); state != Denied || !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v, %v; want denied, ErrFull", state, err)
	}
	for _, key := range keys {
		wantState(t, s, id, key, Denied)
	}
	must(t, s.Delete(entryOf(id, Denied, keys[3])))
	wantState(t, s, id, keys[7], Denied)
	submit(t, s, id, newKey(t).Public(), Denied)
	entries, problems, err := s.List()
	if len(entries) != MaxRefused+1 || problems != nil || err != nil {
		t.Errorf("List: %d entries, %v, %v", len(entries), problems, err)
	}
}

func TestEntryMustStillBeThere(t *testing.T) {
	s, key := newStore(t), newKey(t).Public()
	submit(t, s, "web1", key, Pending)
	tests := map[string]Entry{
		"state changed": entryOf("web1", Rejected, key),
		"other key":     entryOf("web1", Pending, newKey(t).Public()),
		"other id":      entryOf("web2", Pending, key),
		"unknown state": entryOf("web1", Unknown, key),
		"no key":        entryOf("web1", Pending, PublicKey{}),
		"bad id":        entryOf("../minions_pre/web1", Pending, key),
	}
	for name, e := range tests {
		for what, f := range map[string]func(Entry) error{"Accept": s.Accept, "Reject": s.Reject, "Delete": s.Delete} {
			if err := f(e); !errors.Is(err, ErrGone) {
				t.Errorf("%s: %s = %v; want ErrGone", name, what, err)
			}
		}
	}
	wantState(t, s, "web1", key, Pending)
}

func TestLookupFailsClosed(t *testing.T) {
	k := newKey(t)
	tests := []struct {
		name  string
		spoil func(t *testing.T, s *Store)
	}{
		{"accepted file is garbage", func(t *testing.T, s *Store) {
			writeFile(t, filepath.Join(s.dir, "minions/web1"), []byte("x"), 0o644)
		}},
		{"accepted file is a directory", func(t *testing.T, s *Store) {
			must(t, os.Remove(filepath.Join(s.dir, "minions/web1")))
			must(t, os.Mkdir(filepath.Join(s.dir, "minions/web1"), 0o700))
		}},
		{"accepted file is a fifo", func(t *testing.T, s *Store) {
			must(t, os.Remove(filepath.Join(s.dir, "minions/web1")))
			must(t, syscall.Mkfifo(filepath.Join(s.dir, "minions/web1"), 0o600))
		}},
		{"others may write the accepted file", func(t *testing.T, s *Store) {
			must(t, os.Chmod(filepath.Join(s.dir, "minions/web1"), 0o666))
		}},
		{"rejected file is garbage", func(t *testing.T, s *Store) {
			writeFile(t, filepath.Join(s.dir, "minions_rejected/web1"), nil, 0o644)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			submit(t, s, "web1", k.Public(), Pending)
			must(t, s.Accept(entryOf("web1", Pending, k.Public())))
			tt.spoil(t, s)
			if state, err := s.Lookup("web1", k.Public()); state != Denied || err == nil {
				t.Errorf("Lookup = %v, %v; want denied and why", state, err)
			}
			if state, err := s.Submit("web1", k.Public()); state != Denied || err == nil {
				t.Errorf("Submit = %v, %v; want denied and why", state, err)
			}
			if _, problems, err := s.List(); len(problems) != 1 || err != nil {
				t.Errorf("List: problems %v, %v; want one problem", problems, err)
			}
		})
	}
}

func TestVanishedFilesAndDirectories(t *testing.T) {
	s, key := newStore(t), newKey(t).Public()
	submit(t, s, "web1", key, Pending)
	must(t, s.Accept(entryOf("web1", Pending, key)))
	must(t, os.RemoveAll(filepath.Join(s.dir, "minions")))
	wantState(t, s, "web1", key, Unknown)
	submit(t, s, "web1", key, Pending)
	must(t, s.Accept(entryOf("web1", Pending, key)))
	wantState(t, s, "web1", key, Accepted)
	must(t, os.RemoveAll(s.dir))
	if state, err := s.Lookup("web1", key); state == Accepted || err == nil {
		t.Errorf("Lookup without a store = %v, %v", state, err)
	}
}

func TestRejectionWinsOverAcceptance(t *testing.T) {
	s, key := newStore(t), newKey(t).Public()
	submit(t, s, "web1", key, Pending)
	must(t, s.Accept(entryOf("web1", Pending, key)))
	writeFile(t, filepath.Join(s.dir, "minions_denied/web1"), key.PEM(), 0o644) // by hand
	wantState(t, s, "web1", key, Denied)
	must(t, s.Accept(entryOf("web1", Denied, key)))
	if got := story(t, s); got != "web1 accepted" {
		t.Errorf("after the decision: %s", got)
	}
}

func TestListReportsProblems(t *testing.T) {
	s, key := newStore(t), newKey(t).Public()
	submit(t, s, "web1", key, Pending)
	writeFile(t, filepath.Join(s.dir, "minions/web2"), []byte("x"), 0o644)
	writeFile(t, filepath.Join(s.dir, "minions/web3#2"), key.PEM(), 0o644) // one accepted key an id
	writeFile(t, filepath.Join(s.dir, "minions_denied/web3#9"), key.PEM(), 0o644)
	writeFile(t, filepath.Join(s.dir, "minions_denied/a b"), key.PEM(), 0o644)
	writeFile(t, filepath.Join(s.dir, "minions/.tmp-123"), []byte("x"), 0o600)
	must(t, os.Symlink("nowhere", filepath.Join(s.dir, "minions/web4")))
	_, problems, err := s.List()
	var names []string
	for _, p := range problems {
		names = append(names, filepath.Base(p.Path))
	}
	slices.Sort(names)
	if got := strings.Join(names, ","); err != nil || got != "a b,web2,web3#2,web3#9" {
		t.Errorf("problems %s, %v", got, err)
	}
}

func TestStoreModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "pki")
	must(t, os.MkdirAll(filepath.Join(dir, "minions"), 0o777)) // as other software left it
	s, err := OpenStore(dir)
	must(t, err)
	submit(t, s, "web1", newKey(t).Public(), Pending)
	for _, sub := range []string{"", "minions", "minions_pre", "minions_rejected", "minions_denied", "minions_autosign"} {
		if got := modeOf(t, filepath.Join(dir, sub)); got != 0o700 {
			t.Errorf("%q has mode %04o, want 0700", sub, got)
		}
	}
	if got := modeOf(t, filepath.Join(dir, "minions_pre/web1")); got != 0o644 {
		t.Errorf("key file has mode %04o, want 0644", got)
	}
}

func TestOpenExistingStore(t *testing.T) {
	dir := t.TempDir()
	if s, err := OpenExistingStore(filepath.Join(dir, "nosuch")); !errors.Is(err, fs.ErrNotExist) || s != nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("missing: %v, %v; want ErrNotExist with the path", s, err)
	}
	file := writeFile(t, filepath.Join(dir, "file"), nil, 0o600)
	if _, err := OpenExistingStore(file); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("file: %v; want ENOTDIR", err)
	}
	s, err := OpenExistingStore(dir)
	must(t, err)
	if got := story(t, s); got != "" {
		t.Errorf("an empty directory holds %s", got)
	}
	if names, _ := readNames(dir); len(names) != 1 {
		t.Errorf("looking made %v", names)
	}
}

// connectFrom is a minion that connects from host.
func connectFrom(s *Store, id string, key PublicKey, host string) (State, error) {
	state, _, err := s.SubmitFrom(Submission{ID: salt.MinionID(id), Key: key, Host: host, Here: func(k PublicKey) bool { return k == connected }})
	return state, err
}

// connected is the key of somebody who is there.
var connected PublicKey

// One host cannot fill the places of those that wait, the key that was not seen for the
// longest time gives way, and those that are accepted, or about to be, need no place.
func TestWaitingKeysAreBounded(t *testing.T) {
	s := newStore(t)
	accepted, other := newKey(t).Public(), newKey(t).Public()
	submit(t, s, "web1", accepted, Pending)
	must(t, s.Accept(entryOf("web1", Pending, accepted)))
	s.waiting.sync("web1", nil) // as the watch does
	s.waiting.most, s.waiting.ofHost = 6, 4
	var gone []string
	s.GivesWay = func(e Entry) { gone = append(gone, string(e.ID)) }
	wait := func(id, host string) PublicKey {
		t.Helper()
		key := newKey(t).Public()
		if state, err := connectFrom(s, id, key, host); err != nil || state != Pending {
			t.Fatalf("%s: %v, %v", id, state, err)
		}
		return key
	}
	connected = wait("fleet1", "192.0.2.1")
	eves := make([]PublicKey, 10)
	for i := range eves {
		eves[i] = wait(fmt.Sprint("eve", i), "192.0.2.66")
	}
	if got := strings.Join(gone, " "); got != "eve0 eve1 eve2 eve3 eve4 eve5" {
		t.Errorf("gave way beside one host's flood: %s", got)
	}
	gone = nil
	if state, err := connectFrom(s, "eve6", eves[6], "192.0.2.66"); state != Pending || err != nil { // it is seen
		t.Fatal(state, err)
	}
	wait("fleet2", "192.0.2.1")
	wait("fleet3", "192.0.2.3")
	if got := strings.Join(gone, " "); got != "eve7" {
		t.Errorf("gave way to others: %s", got)
	}
	for i := range 4 {
		wait(fmt.Sprint("mallory", i), fmt.Sprint("198.51.100.", i))
	}
	wantState(t, s, "fleet1", connected, Pending)
	wantState(t, s, "web1", accepted, Accepted)
	if state, isNew, err := s.SubmitFrom(Submission{ID: "web2", Key: other, Host: "192.0.2.66", Decided: true}); state != Pending || !isNew || err != nil {
		t.Errorf("a key on which rules have decided: %v, %v", state, err)
	}
	s.waiting.most, s.waiting.ofHost = 1, 1
	s.waiting.sync("web2", nil)
	for id := range s.waiting.ids {
		if id != "fleet1" {
			s.waiting.sync(id, nil)
		}
	}
	if state, err := connectFrom(s, "fleet9", newKey(t).Public(), "192.0.2.9"); state != Denied || !errors.Is(err, ErrFull) {
		t.Errorf("nobody can give way: %v, %v; want denied, ErrFull", state, err)
	}
}

// What waits is counted as the files have it when a daemon starts, and host by host.
func TestWaitingKeysAreCountedAnew(t *testing.T) {
	s := newStore(t)
	for i := range 5 {
		submit(t, s, salt.MinionID(fmt.Sprint("web", i)), newKey(t).Public(), Pending)
	}
	submit(t, s, "web1", newKey(t).Public(), Denied)
	again, err := OpenStore(s.dir)
	must(t, err)
	key := newKey(t).Public()
	submit(t, again, "web9", key, Pending)
	if again.waiting.n != 7 || again.waiting.largest != 7 {
		t.Errorf("%d keys wait, %d of them of one host; want 7", again.waiting.n, again.waiting.largest)
	}
	must(t, s.Delete(entryOf("web9", Pending, key)))
	if _, _, err := again.OfAll([]salt.MinionID{"web9", "web1"}); err != nil {
		t.Fatal(err)
	}
	if again.waiting.n != 6 || again.waiting.largest != 6 {
		t.Errorf("%d keys wait, %d of them of one host; want 6", again.waiting.n, again.waiting.largest)
	}
}

// However many keys wait, one more costs no look at the directory of them all: what lies
// there is counted once, and afterwards as the watch tells of it.
func TestWaitingKeysAreCountedOnce(t *testing.T) {
	s := newStore(t)
	submit(t, s, "web1", newKey(t).Public(), Pending)
	writeFile(t, filepath.Join(s.dir, "minions_pre/web2"), newKey(t).Public().PEM(), 0o644) // of which nobody has told
	submit(t, s, "web3", newKey(t).Public(), Pending)
	if s.waiting.n != 2 {
		t.Errorf("%d keys wait, want 2: the directory was read anew for a key", s.waiting.n)
	}
	if _, _, err := s.OfAll([]salt.MinionID{"web2"}); err != nil { // as the watch does
		t.Fatal(err)
	}
	if s.waiting.n != 3 {
		t.Errorf("%d keys wait, want 3", s.waiting.n)
	}
}

// A key that was denied holds no id: when the accepted one is gone, the next key of its
// minion waits as any new one does.
func TestADeniedKeyHoldsNoID(t *testing.T) {
	s, key, eve, fresh := newStore(t), newKey(t).Public(), newKey(t).Public(), newKey(t).Public()
	submit(t, s, "web1", key, Pending)
	must(t, s.Accept(entryOf("web1", Pending, key)))
	for range MaxRefused {
		submit(t, s, "web1", newKey(t).Public(), Denied)
	}
	must(t, s.Delete(entryOf("web1", Denied, mustOf(t, s, "web1", Denied))))
	submit(t, s, "web1", eve, Denied)
	must(t, s.Delete(entryOf("web1", Accepted, key)))
	wantState(t, s, "web1", eve, Denied)
	wantState(t, s, "web1", fresh, Unknown)
	submit(t, s, "web1", fresh, Pending)
	submit(t, s, "web1", eve, Denied)
	must(t, s.Accept(entryOf("web1", Pending, fresh)))
	wantState(t, s, "web1", fresh, Accepted)
}

// mustOf is a key of id in a state.
func mustOf(t *testing.T, s *Store, id salt.MinionID, state State) PublicKey {
	t.Helper()
	entries, err := s.Of(id)
	must(t, err)
	for _, e := range entries {
		if e.State == state {
			return e.Key
		}
	}
	t.Fatalf("no key of %s is %s", id, state)
	return PublicKey{}
}

// While another process holds the lock, new keys wait for it without a thread each.
func TestNewKeysTakeNoThreads(t *testing.T) {
	s := newStore(t)
	unlock, err := LockDir(s.dir)
	must(t, err)
	before := threads(t)
	var wg sync.WaitGroup
	for i := range 500 {
		key := newKey(t).Public()
		wg.Go(func() {
			if state, err := s.Submit(salt.MinionID(fmt.Sprint("web", i)), key); state != Pending || err != nil {
				t.Errorf("Submit = %v, %v", state, err)
			}
		})
	}
	most := 0
	for range 100 { // all have begun long before
		most = max(most, threads(t)-before)
		time.Sleep(time.Millisecond)
	}
	unlock()
	deadline.Call(t, wg.Wait, "wg")
	if most > 50 {
		t.Errorf("%d threads for 500 keys", most)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	must(t, err)
	return len(tasks)
}

// A loss of power may leave an empty file of a key that waited: its minion brings it again.
func TestEmptyFileOfAWaitingKey(t *testing.T) {
	s, key := newStore(t), newKey(t).Public()
	writeFile(t, filepath.Join(s.dir, "minions_pre/web1"), nil, 0o644)
	submit(t, s, "web1", key, Pending)
	wantState(t, s, "web1", key, Pending)
	writeFile(t, filepath.Join(s.dir, "minions/web2"), nil, 0o644)
	if state, err := s.Submit("web2", key); state != Denied || err == nil {
		t.Errorf("an empty file of an accepted key: %v, %v; want a refusal", state, err)
	}
}

// TestAtOnce lets minions connect while operators decide, on several Stores over
// one directory as in several processes: no key may get lost or doubled, and
// nobody may be seen as unknown in between.
func TestAtOnce(t *testing.T) {
	dir := newStore(t).dir
	const minions = 8
	keys := make([]PublicKey, minions)
	ids := make([]salt.MinionID, minions)
	for i := range keys {
		keys[i], ids[i] = newKey(t).Public(), salt.MinionID(fmt.Sprintf("web%d", i))
	}
	var wg sync.WaitGroup
	for range 3 {
		s, err := OpenStore(dir)
		must(t, err)
		wg.Go(func() {
			for round := range 5 {
				for i := range keys {
					state, err := s.Submit(ids[i], keys[i])
					if err != nil || state == Unknown || state == Denied {
						t.Errorf("Submit(%s) = %v, %v", ids[i], state, err)
					}
					err = [...]func(Entry) error{s.Accept, s.Reject}[round%2](entryOf(ids[i], state, keys[i]))
					if err != nil && !errors.Is(err, ErrGone) {
						t.Error(err)
					}
					if state, err := s.Lookup(ids[i], keys[i]); err != nil || state == Unknown || state == Denied {
						t.Errorf("Lookup(%s) = %v, %v", ids[i], state, err)
					}
				}
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
	s, err := OpenExistingStore(dir)
	must(t, err)
	entries, problems, err := s.List()
	if len(entries) != minions || len(problems) != 0 || err != nil {
		t.Errorf("left: %s, %v", story(t, s), err)
	}
}

func TestWatch(t *testing.T) {
	s, key := newStore(t), newKey(t).Public()
	ctx, cancel := context.WithCancel(t.Context())
	changed, err := s.Watch(ctx, slog.New(slog.DiscardHandler))
	must(t, err)
	step := func(name string, f func()) {
		t.Helper()
		f()
		deadline.Receive(t, changed, name)
	}
	step("submission", func() { submit(t, s, "web1", key, Pending) })
	step("acceptance", func() { must(t, s.Accept(entryOf("web1", Pending, key))) })
	step("removal by hand", func() { must(t, os.Remove(filepath.Join(s.dir, "minions/web1"))) })
	step("loss of a directory", func() { must(t, os.Remove(filepath.Join(s.dir, "minions"))) })
	step("its return", func() { must(t, os.Mkdir(filepath.Join(s.dir, "minions"), 0o700)) })
	step("key in the new directory", func() {
		writeFile(t, filepath.Join(s.dir, "minions/web1"), key.PEM(), 0o644)
	})
	cancel()
	for range changed { // ends since the watch closes the channel
	}
}

func TestWatchGathers(t *testing.T) {
	s := newStore(t)
	changed, err := s.Watch(t.Context(), slog.New(slog.DiscardHandler))
	must(t, err)
	key := newKey(t).Public().PEM()
	for i := range 500 {
		writeFile(t, filepath.Join(s.dir, "minions_pre", fmt.Sprintf("web%d", i)), key, 0o644)
	}
	deadline.Receive(t, changed, "the first signal")
	signals := 1
	for quiet := false; !quiet; {
		select {
		case <-changed:
			signals++
		case <-time.After(20 * watchPause):
			quiet = true
		}
	}
	if signals > 250 {
		t.Errorf("%d signals for 500 changes", signals)
	}
}

func TestWatchOfNothing(t *testing.T) {
	s := newStore(t)
	must(t, os.RemoveAll(filepath.Join(s.dir, "minions_pre")))
	if _, err := s.Watch(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "minions_pre") {
		t.Errorf("Watch = %v; want the missing directory named", err)
	}
}

func BenchmarkLookup(b *testing.B) {
	s, key := newStore(b), newKey(b).Public()
	submit(b, s, "web1", key, Pending)
	must(b, s.Accept(entryOf("web1", Pending, key)))
	for b.Loop() {
		if state, err := s.Lookup("web1", key); state != Accepted || err != nil {
			b.Fatal(state, err)
		}
	}
}

// TestAnErrorOfTheSystemIsNoMissingKey: what cannot be read now is told apart from what is gone, also where nothing can
// be opened, and from what is no key.
func TestAnErrorOfTheSystemIsNoMissingKey(t *testing.T) {
	s, key := newStore(t), newKey(t).Public()
	submit(t, s, "web1", key, Pending)
	there := filepath.Join(s.dir, "minions_pre/web1")
	gone := filepath.Join(s.dir, "minions_pre/web2")
	failed := func(path string, err syscall.Errno) error { return &fs.PathError{Op: "open", Path: path, Err: err} }
	for _, c := range []struct {
		name   string
		path   string
		err    error
		unread bool
	}{
		{"no descriptors", there, failed(there, syscall.EMFILE), true},
		{"no descriptors of the machine", there, failed(there, syscall.ENFILE), true},
		{"the disk", there, failed(there, syscall.EIO), true},
		{"no permission", there, failed(there, syscall.EACCES), false},
		{"a directory", filepath.Dir(there), failed(filepath.Dir(there), syscall.EIO), false},
		{"others may write it", there, unsafef("others may write it"), false},
	} {
		if err := fileError(c.path, c.err); err == nil || errors.Is(err, ErrUnread) != c.unread {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, err := range []error{failed(gone, syscall.EMFILE), failed(gone, syscall.ENOENT)} {
		if err := fileError(gone, err); err != nil {
			t.Errorf("there is no file: %v", err)
		}
	}
}

// What waits can be made pending or denied, and counts for its host as before; it can be told to be either when it comes.
func TestSuspendedKeys(t *testing.T) {
	s := newStore(t)
	one, two := newKey(t).Public(), newKey(t).Public()
	for key, as := range map[PublicKey]State{one: Pending, two: Denied} {
		state, _, err := s.SubmitFrom(Submission{ID: "web1", Key: key, Host: "192.0.2.1", As: as})
		if state != as || err != nil {
			t.Fatal(state, err)
		}
	}
	if err := s.Suspend(entryOf("web1", Denied, two), Pending); !errors.Is(err, ErrTaken) {
		t.Errorf("two keys of an id are pending: %v", err)
	}
	must(t, s.Suspend(entryOf("web1", Pending, one), Denied))
	must(t, s.Suspend(entryOf("web1", Denied, two), Pending))
	wantState(t, s, "web1", one, Denied)
	wantState(t, s, "web1", two, Pending)
	if _, _, err := s.OfAll([]salt.MinionID{"web1"}); err != nil { // as the watch does
		t.Fatal(err)
	}
	if n := s.waiting.count("192.0.2.1"); n != 2 || s.waiting.n != 2 {
		t.Errorf("%d keys of the host wait, %d in all", n, s.waiting.n)
	}
	for range MaxRefused - 1 {
		submit(t, s, "web1", newKey(t).Public(), Denied)
	}
	if err := s.Suspend(entryOf("web1", Pending, two), Denied); !errors.Is(err, ErrFull) {
		t.Errorf("too many keys of an id are denied: %v", err)
	}
	var gone []PublicKey
	s.GivesWay = func(e Entry) { gone = append(gone, e.Key) }
	must(t, s.Evict(entryOf("web1", Denied, one)))
	must(t, s.Suspend(entryOf("web1", Pending, two), Denied))
	if len(gone) != 1 || gone[0] != one {
		t.Errorf("gave way: %v", gone)
	}
}
