package accord

import (
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestDecided: what the members have decided about the keys of an id is told when all of it has come, and
// only then.
func TestDecided(t *testing.T) {
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	first, second := newSeat(t, j, "a"), newSeat(t, j, "b")
	settled(first)
	old, key := newKey(t).Public(), newKey(t).Public()
	decided := func(what string, id salt.MinionID, accepted, refused, known bool) {
		t.Helper()
		gotAccepted, gotRefused, gotKnown := second.shared.Decided(id)
		if gotAccepted != accepted || gotRefused != refused || gotKnown != known {
			t.Errorf("%s: accepted %t, refused %t, known %t", what, gotAccepted, gotRefused, gotKnown)
		}
	}
	decided("before anything has come", "web1", false, false, false)
	first.act(Accept, "web1", old)
	settled(first, second)
	decided("accepted", "web1", true, false, true)
	decided("nothing was decided", "web2", false, false, true)
	first.act(Delete, "web1", old)
	settled(first, second)
	decided("deleted", "web1", false, true, true)
	first.act(Accept, "web1", key)
	settled(first, second)
	decided("another key is accepted", "web1", true, true, true)
	first.act(Reject, "web1", key)
	settled(first, second)
	decided("and rejected", "web1", false, true, true)
	first.act(Delete, "web1", key)
	first.act(Accept, "web1", old)
	settled(first, second)
	decided("the first one is accepted again", "web1", true, true, true)
	second.shared.view.missed = true
	if _, _, known := second.shared.Decided("web1"); known {
		t.Error("not everything is remembered, and yet all is known")
	}
}
