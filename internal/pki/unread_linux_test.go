package pki

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestAnUnreadKeyDoesNotGiveWay: a waiting key whose file cannot be read, and so is not removed, goes on to be counted:
// another one gives way, or the new one is refused.
func TestAnUnreadKeyDoesNotGiveWay(t *testing.T) {
	s := newStore(t)
	s.Most = 2
	var gone []string
	s.GivesWay = func(e Entry) { gone = append(gone, string(e.ID)) }
	unread := func(id string) {
		t.Helper()
		path := filepath.Join(s.Dir(), "minions_pre", id)
		must(t, os.Remove(path))
		must(t, os.Symlink("/proc/self/mem", path)) // opened well, but to read it is EIO
	}
	submit(t, s, "web1", newKey(t).Public(), Pending)
	submit(t, s, "web2", newKey(t).Public(), Pending)
	unread("web1")
	submit(t, s, "web3", newKey(t).Public(), Pending)
	if len(gone) != 1 || gone[0] != "web2" || s.waiting.n != 2 {
		t.Errorf("the oldest cannot be read: gave way %q, %d are counted; want web2, 2", gone, s.waiting.n)
	}
	unread("web3")
	if state, err := s.Submit("web4", newKey(t).Public()); state != Denied || !errors.Is(err, ErrFull) || s.waiting.n != 2 {
		t.Errorf("none can be read: %v, %v, %d are counted; want denied, ErrFull, 2", state, err, s.waiting.n)
	}
	names, err := readNames(filepath.Join(s.Dir(), "minions_pre"))
	if err != nil || len(names) != 2 {
		t.Errorf("there are the files %q, %v; want 2", names, err)
	}
}
