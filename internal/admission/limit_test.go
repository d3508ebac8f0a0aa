package admission

import (
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestNoMoreMinionsThanMaxMinions: beyond max_minions an accepted minion is turned away, also while
// the connections of those before it are not registered yet. One that is connected may connect again,
// its salt-call may in any case, and a place that becomes free is given away.
func TestNoMoreMinionsThanMaxMinions(t *testing.T) {
	w := begin(t)
	w.MaxMinions = 2
	peers := map[string]broker.Peer{}
	for _, id := range []string{"web1", "web2", "web3"} {
		peers[id] = w.peer(id, bustest.Key(t))
		w.Admit(peers[id])
		if err := w.Keys.Store.Accept(w.entry(salt.MinionID(id))); err != nil {
			t.Fatal(err)
		}
	}
	role := func(id string, caller bool) bus.Role {
		p := peers[id]
		p.Caller = caller
		return w.Admit(p).Role
	}
	for _, c := range []struct {
		id   string
		want bus.Role
	}{{"web1", bus.RoleMinion}, {"web2", bus.RoleMinion}, {"web3", bus.RoleUnaccepted}, {"web1", bus.RoleMinion}} {
		if got := role(c.id, false); got != c.want {
			t.Errorf("%s is %q, want %q", c.id, got, c.want)
		}
	}
	if acts := w.acts[len(w.acts)-2:]; !slices.Equal(acts, []any{"full", "accept"}) {
		t.Errorf("announced are %v", acts)
	}
	w.admitted.when = nil // some seconds later all are registered
	w.open = []bus.Identity{{Role: bus.RoleMinion, Name: "web1"}, {Role: bus.RoleMinion, Name: "web1"}, {Role: bus.RoleUser, Name: "0"}, {Role: bus.RoleMinion, Name: "web2"}}
	if a, b, c := role("web3", false), role("web2", false), role("web3", true); a != bus.RoleUnaccepted || b != bus.RoleMinion || c != bus.RoleCaller {
		t.Errorf("a third is %q, one that connects again %q, salt-call %q", a, b, c)
	}
	w.open, w.admitted.when = w.open[:3], nil
	if got := role("web3", false); got != bus.RoleMinion {
		t.Errorf("when there is room again it is %q", got)
	}
	if w.walks > 0 {
		t.Errorf("all connections were looked at %d times", w.walks)
	}
}

// The answer must not be taken for a refusal of the key.
func TestAFullMasterIsUnavailable(t *testing.T) {
	if code := rpc.CodeOf(errTooMany); code != rpc.Unavailable {
		t.Errorf("the code is %v", code)
	}
}
