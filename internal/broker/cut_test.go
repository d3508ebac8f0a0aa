package broker

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/bus"
)

// Only those connections of a key are found that have the roles, and none after their end.
func TestConnectionsOfAKey(t *testing.T) {
	g := newAuthenticator(Options{})
	for cid, i := range []bus.Identity{
		{Role: bus.RoleUnaccepted, Name: "web1", Key: "k"}, {Role: bus.RoleGuest, Name: "web1", Key: "k"}, {Role: bus.RoleMinion, Name: "web1", Key: "k"},
		{Role: bus.RoleUnaccepted, Name: "web2", Key: "k"}, {Role: bus.RoleUnaccepted, Name: "web2", Key: "other"}, {Role: bus.RoleUser, Name: "root"},
	} {
		i.Nonce = strings.Repeat(string(rune('a'+cid)), 20)
		if err := g.enter(uint64(cid), i, "192.0.2.7", new(lifetime)); err != nil {
			t.Fatal(err)
		}
	}
	of := func(key string) []uint64 {
		return slices.Sorted(maps.Keys(g.ofKey(key, bus.RoleUnaccepted, bus.RoleGuest)))
	}
	if got := of("k"); !slices.Equal(got, []uint64{0, 1, 3}) {
		t.Errorf("of the key are %v", got)
	}
	g.leave(1)
	if got := of("k"); !slices.Equal(got, []uint64{0, 3}) || len(of("")) > 0 {
		t.Errorf("after the end of one: %v, and %v without a key", got, of(""))
	}
	for cid := range uint64(6) {
		g.leave(cid)
	}
	if n := len(g.in) + len(g.inboxes) + len(g.perKey); n > 0 {
		t.Errorf("%d entries are left", n)
	}
}
