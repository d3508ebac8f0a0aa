package localapi

import (
	"fmt"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestNamesOfRequests: the same request of the same user has the same name and no other has
// it; without a name nothing is a repetition.
func TestNamesOfRequests(t *testing.T) {
	one, two := []event.Item{{Tag: "a"}}, []event.Item{{Tag: "a"}, {Tag: "b"}}
	for _, test := range []struct {
		name string
		q    protocol.Fire
		want string
	}{
		{"none", protocol.Fire{Events: one}, ""},
		{"by its id", protocol.Fire{ID: "n", Events: one}, "n"},
		{"of a series", protocol.Fire{ID: "n", Series: "s", First: 4, Events: one}, "s/4"},
		{"several of a series, which are cut otherwise the next time", protocol.Fire{ID: "n", Series: "s", First: 4, Events: two}, "n"},
	} {
		if got := requestID(test.q); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	fred, anna := bus.Identity{Role: bus.RoleUser, Name: "1000"}, bus.Identity{Role: bus.RoleUser, Name: "1001"}
	if repeatID(fred, "n") == repeatID(anna, "n") {
		t.Error("two users have the same name for their requests: one could keep the other's away")
	}
	if repeatID(fred, "") != "" {
		t.Error("a request without a name is a repetition of another")
	}
}

// A lost connection may be tried again; a refusal of a master keeps its code.
func TestRefusalsOfAMasterKeepTheirCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		want rpc.Code
	}{
		{fmt.Errorf("ask: %w", rpc.ErrLost), rpc.Unavailable}, {rpc.Errorf(rpc.Denied, "no"), rpc.Denied}, {rpc.Errorf(rpc.NotFound, "none"), rpc.NotFound},
	} {
		if got := unavailable(test.err); rpc.CodeOf(got) != test.want {
			t.Errorf("%v becomes %v, want the code %v", test.err, got, test.want)
		}
	}
}
