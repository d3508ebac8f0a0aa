package accord

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
)

// TestARefusalOfAKeyWhoseFileCannotBeRead: a key that another member refuses is not accepted here any more, even if the
// system cannot read its file. The file is changed as soon as it can be read.
func TestARefusalOfAKeyWhoseFileCannotBeRead(t *testing.T) {
	for act, want := range map[Act]pki.State{Reject: pki.Rejected, Delete: pki.Unknown} {
		t.Run(string(act), func(t *testing.T) {
			j := openStore(t)
			a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
			key := newKey(t).Public()
			token, path := bus.KeyToken(key.Key()), filepath.Join(b.dir, "minions", "web1")
			away := filepath.Join(b.dir, "away")
			unread := func() {
				t.Helper()
				if err := os.Rename(path, away); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink("/proc/self/mem", path); err != nil { // opened well, but to read it is EIO
					t.Fatal(err)
				}
			}
			readable := func() {
				t.Helper()
				if err := os.Rename(away, path); err != nil {
					t.Fatal(err)
				}
			}
			is := func(when string, want bool) {
				t.Helper()
				if err := b.keys.Look("web1"); err != nil {
					t.Fatal(err)
				}
				if b.keys.Accepts("web1", token) != want || b.keys.Stands("web1", token) != want {
					t.Errorf("%s it is accepted: %v", when, !want)
				}
			}
			a.act(Accept, "web1", key)
			settled(a, b)
			is("before", true)
			unread()
			settled(a, b)
			is("while the file cannot be read", true)
			a.act(act, "web1", key)
			settled(a, b)
			is("after the refusal", false)
			readable()
			is("when the file can be read", false)
			settled(a, b)
			b.is("web1", key, want)
			a.is("web1", key, want)

			// It is refused and accepted again while the file cannot be read.
			a.act(Accept, "web1", key)
			settled(a, b)
			is("once more", true)
			unread()
			a.act(act, "web1", key)
			settled(a, b)
			is("after the second refusal", false)
			a.act(Accept, "web1", key)
			settled(a, b)
			readable()
			settled(a, b)
			is("after it was accepted again", true)
		})
	}
}

// TestAFollowerRefusesAKeyWhoseFileCannotBeRead is the same for two linked masters.
func TestAFollowerRefusesAKeyWhoseFileCannotBeRead(t *testing.T) {
	b := still(t, "b", "a")
	key := newKey(t).Public()
	b.does(Accept, "web1", key)
	b.round()
	token, path := bus.KeyToken(key.Key()), b.entry("web1", key).Path
	away := filepath.Join(b.keys.Store.Dir(), "away")
	is := func(when string, want bool) {
		t.Helper()
		if err := b.keys.Look("web1"); err != nil {
			t.Fatal(err)
		}
		if b.keys.Accepts("web1", token) != want {
			t.Errorf("%s it is accepted: %v", when, !want)
		}
	}
	is("before", true)
	if err := os.Rename(path, away); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/mem", path); err != nil {
		t.Fatal(err)
	}
	is("while the file cannot be read", true)
	b.tells("a", named("web1", key), entry{Decision: Decision{Act: Reject}, Key: string(key.PEM())})
	b.round()
	is("after the refusal", false)
	if err := os.Rename(away, path); err != nil {
		t.Fatal(err)
	}
	is("when the file can be read", false)
	b.follower.retry(false)
	b.round()
	if got := b.entry("web1", key).State; got != pki.Rejected {
		t.Errorf("when the file can be read the key is %s", got)
	}
}
