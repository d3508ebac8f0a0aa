package member

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestAListThatIsUnreadEndsALinkLater: but a key that is on the list at once, and the list that was read in between
// begins a new time.
func TestAListThatIsUnreadEndsALinkLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := refusal(ErrUnread, newKey(t).Public(), "", "too many open files")
		var u Unread
		for _, step := range []struct {
			what  string
			after time.Duration
			err   error
			stays bool
		}{
			{"unread for the first time", 0, unread, true},
			{"some seconds later", UnreadTime - time.Second, unread, true},
			{"read again", 0, nil, true},
			{"unread once more", UnreadTime, unread, true},
			{"another refusal", 0, errors.New("no member"), false},
			{"unread after that", UnreadTime, unread, true},
			{"for too long", UnreadTime, unread, false},
			{"and longer", UnreadTime, unread, false},
			{"on the list", 0, refusal(ErrRemoved, newKey(t).Public(), "", "it is on the list"), false},
		} {
			time.Sleep(step.after)
			if got := u.Stays(step.err); got != step.stays {
				t.Errorf("%s: it stays: %t", step.what, got)
			}
		}
	})
}

// TestAListThatCannotBeReadIsNoRemoval: Judge refuses everybody, and says that it is not known who was removed.
func TestAListThatCannotBeReadIsNoRemoval(t *testing.T) {
	s := newSystem(t, "prod")
	key := newKey(t)
	dir := t.TempDir()
	r := s.rule("a-1")
	r.Removed = func() (Fingerprints, error) { return ReadRemoved(RemovedFile(dir)) }
	cert := s.shows("b-1", key, s.sign(key))
	for list, want := range map[string]error{"": nil, "no fingerprint\n": ErrUnread, key.Public().SHA256() + "\n": ErrRemoved} {
		if err := os.WriteFile(RemovedFile(dir), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := r.Judge(cert.Leaf)
		if !errors.Is(err, want) || (m == Member{}) != (want != nil) {
			t.Errorf("with the list %q: %v, %v", list, m, err)
		}
	}
}
