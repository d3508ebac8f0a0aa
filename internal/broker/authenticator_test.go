package broker

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/socket"
	"github.com/brinebus/brine/test/deadline"
)

// The secret that represents the kernel's word for a local user is valid for one connection,
// and not after that connection has ended.
func TestLocalSecretIsGoodOnce(t *testing.T) {
	t.Parallel()
	b, _, _ := startLocal(t, "")
	served := func(user, pass string) bool {
		c, err := b.server.InProcessConn()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go fmt.Fprintf(c, "CONNECT {\"user\":%q,\"pass\":%q}\r\nPING\r\n", user, pass) // a pipe: both ends must be read
		for r := bufio.NewScanner(c); r.Scan(); {
			if r.Text() == "PONG" {
				return true
			}
		}
		return false
	}
	s := b.auth.expect(&localClient{Peer: socket.Peer{UID: uint32(os.Geteuid())}})
	if !served(bus.NewNonce(), s) {
		t.Fatal("the first use was refused")
	}
	for name, pass := range map[string]string{"the second use": s, "a guess": secret(), "none": "", "the daemon's, as a password": b.auth.daemon} {
		if served(bus.NewNonce(), pass) {
			t.Errorf("%s was taken", name)
		}
	}
	s = b.auth.expect(&localClient{})
	if served("short", s) {
		t.Error("served without a nonce")
	}
	if served(bus.NewNonce(), s) {
		t.Error("a secret was good for a second try")
	}
}

// The number of connections of a remote user is limited, whatever number of keys they use.
func TestOneLoginHasSoManyConnections(t *testing.T) {
	t.Parallel()
	g := newAuthenticator(Options{})
	enter := func(cid uint64, name string) error {
		i := bus.Identity{Role: bus.RoleRemote, Name: name, Key: fmt.Sprint("key", cid), Nonce: fmt.Sprintf("%020d", cid)}
		return g.enter(cid, i, "192.0.2.7", new(lifetime))
	}
	for n := range uint64(maxPerUser) {
		if err := enter(n, "pam:ada"); err != nil {
			t.Fatalf("connection %d: %v", n+1, err)
		}
	}
	if err := enter(maxPerUser, "pam:ada"); err == nil || !strings.Contains(err.Error(), "this user has 256 connections") {
		t.Errorf("one more: %v", err)
	}
	if err := enter(maxPerUser+1, "pam:bob"); err != nil {
		t.Errorf("another user: %v", err)
	}
	g.leave(7)
	if err := enter(maxPerUser+2, "pam:ada"); err != nil {
		t.Errorf("after the end of one: %v", err)
	}
}

// A connection that ends during authentication is not registered afterwards, in whatever order
// its end and the decision come.
func TestNothingOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	g := newAuthenticator(Options{})
	i := bus.Identity{Role: bus.RoleMinion, Name: "web1", Key: "k", Nonce: strings.Repeat("a", 20)}
	for cid := range uint64(1000) {
		var tie lifetime
		judged := make(chan struct{})
		go func() {
			defer close(judged)
			_ = g.enter(cid, i, "", &tie) // an error if it ended first
		}()
		if id, entered := tie.end(); entered {
			g.leave(id)
		}
		deadline.Receive(t, judged, "judged")
		if n := len(g.in) + len(g.inboxes) + len(g.perKey) + len(g.minions.daemons); n != 0 {
			t.Fatalf("%d entries are left of a connection that has ended", n)
		}
	}
}

// What no row allows is denied, although the server treats an empty list of allowed subjects as
// permission for all.
func TestAnEmptyPermissionListDeniesAll(t *testing.T) {
	for _, i := range []bus.Identity{{}, {Role: "operator", Name: "x"}, {Role: bus.RoleMinion}, {Role: bus.RoleUser}, {Role: bus.RoleUnaccepted}} {
		p := permissions(bus.MasterEndpoints.Rights(), i)
		if len(p.Publish.Allow) > 0 || len(p.Publish.Deny) != 1 || p.Publish.Deny[0] != ">" {
			t.Errorf("%+v may publish %+v", i, p.Publish)
		}
		if len(p.Subscribe.Allow) > 0 || len(p.Subscribe.Deny) != 1 || p.Subscribe.Deny[0] != ">" {
			t.Errorf("%+v may subscribe to %+v", i, p.Subscribe)
		}
	}
}

// TestConnectionsOfOneMinion: those of the daemon of one minion, or all with its key, are found, until they end, and minions
// with several are counted once.
func TestConnectionsOfOneMinion(t *testing.T) {
	t.Parallel()
	g := newAuthenticator(Options{})
	enter := func(cid uint64, role bus.Role, name string) {
		t.Helper()
		i := bus.Identity{Role: role, Name: name, Key: fmt.Sprint("key", cid), Nonce: fmt.Sprintf("%020d", cid)}
		if err := g.enter(cid, i, "192.0.2.7", new(lifetime)); err != nil {
			t.Fatal(err)
		}
	}
	enter(1, bus.RoleMinion, "web1")
	enter(2, bus.RoleCaller, "web1")
	enter(3, bus.RoleUnaccepted, "web1")
	enter(4, bus.RoleMinion, "web1")
	const others = 5
	for n := range uint64(others) {
		enter(100+n, bus.RoleMinion, fmt.Sprint("db", n))
	}
	if got := slices.Sorted(maps.Keys(g.ofMinion("web1", bus.RoleMinion))); !slices.Equal(got, []uint64{1, 4}) || g.countMinions() != 1+others {
		t.Errorf("connections %v of web1, %d minions", got, g.countMinions())
	}
	if got := slices.Sorted(maps.Keys(g.ofMinion("web1", bus.RoleMinion, bus.RoleCaller))); !slices.Equal(got, []uint64{1, 2, 4}) {
		t.Errorf("with its key there are %v", got)
	}
	g.leave(1)
	g.leave(2)
	g.leave(3)
	if n := len(g.minions.callers); n > 0 {
		t.Errorf("after its end a connection of salt-call is one of %d", n)
	}
	if got := g.ofMinion("web1", bus.RoleMinion); len(got) != 1 || got[4].Name != "web1" {
		t.Errorf("after the end of one there are %v", got)
	}
	g.leave(4)
	if got := g.ofMinion("web1", bus.RoleMinion); len(got) != 0 || g.countMinions() != others {
		t.Errorf("after the end of both there are %v, and %d minions", got, g.countMinions())
	}
}
