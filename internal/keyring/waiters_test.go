package keyring

import (
	"testing"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// A change of a key wakes the connections that claim its id and no others; a connection waits
// once.
func TestAKeyChangeWakesItsConnections(t *testing.T) {
	var w Waiters
	web1, stop, first := w.Wait("web1", "a")
	if !first {
		t.Fatal("the first question is not taken")
	}
	web2, stop2, _ := w.Wait("web2", "b")
	if _, _, again := w.Wait("web1", "a"); again {
		t.Error("a connection waits twice")
	}
	w.Wake(pki.Seen{}, []Change{{Name: pki.Name{ID: "web1", Finger: "x"}, After: pki.Accepted}})
	if len(web1) != 1 || len(web2) != 0 {
		t.Errorf("signals: %d for web1, %d for web2; want 1, 0", len(web1), len(web2))
	}
	<-web1
	w.Wake(pki.Seen{IDs: map[salt.MinionID]bool{"web2": true}}, nil)
	if len(web1) != 0 || len(web2) != 1 {
		t.Errorf("signals after the key of web2 was touched: %d for web1, %d for web2; want 0, 1", len(web1), len(web2))
	}
	if w.Wake(pki.Seen{All: true}, nil); len(web1) != 1 {
		t.Error("no signal when all keys may have changed")
	}
	stop()
	stop2()
	if len(w.ids) != 0 {
		t.Errorf("%d ids are left", len(w.ids))
	}
}
