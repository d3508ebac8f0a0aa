package broker

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"brine/internal/bus"
	"brine/internal/socket"
)

// The secret that stands for the kernel's word is good for one connection, and
// for none after its time.
func TestLocalSecretIsGoodOnce(t *testing.T) {
	t.Parallel()
	b, _, _ := startLocal(t, "")
	served := func(user, pass string) bool {
		c, err := b.server.InProcessConn()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go fmt.Fprintf(c, "CONNECT {\"user\":%q,\"pass\":%q}\r\nPING\r\n", user, pass) // a pipe: both ends must move
		for r := bufio.NewScanner(c); r.Scan(); {
			if r.Text() == "PONG" {
				return true
			}
		}
		return false
	}
	s := b.gate.expect(socket.Peer{UID: uint32(os.Geteuid())})
	if !served(bus.NewNonce(), s) {
		t.Fatal("the first use was refused")
	}
	for name, pass := range map[string]string{"the second use": s, "a guess": secret(), "none": "", "the daemon's, as a password": b.gate.daemon} {
		if served(bus.NewNonce(), pass) {
			t.Errorf("%s was taken", name)
		}
	}
	s = b.gate.expect(socket.Peer{})
	if served("short", s) {
		t.Error("served without a nonce")
	}
	if served(bus.NewNonce(), s) {
		t.Error("a secret was good for a second try")
	}
}

func TestOneUserHasSoManyConnections(t *testing.T) {
	b := &Broker{users: map[uint32]int{}}
	const fred = 4_000_000
	for n := range maxPerUser {
		if !b.count(fred) {
			t.Fatalf("connection %d was refused", n+1)
		}
	}
	if b.count(fred) {
		t.Error("there is no limit")
	}
	if !b.count(fred+1) || !b.count(0) {
		t.Error("another user was refused")
	}
	b.uncount(fred)
	if !b.count(fred) {
		t.Error("the end of a connection freed no place")
	}
	for range 2 * maxPerUser {
		if !b.count(0) || !b.count(uint32(os.Geteuid())) {
			t.Fatal("root was refused")
		}
	}
}

func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	g, err := newGate(Options{})
	if err != nil {
		t.Fatal(err)
	}
	stranger := func(n int) bus.Identity {
		return bus.Identity{Role: bus.RoleStranger, Name: "web1", Key: fmt.Sprint(n), Nonce: strings.Repeat("a", 20)}
	}
	for n := range maxStrangers {
		if err := g.enter(uint64(n), stranger(n)); err != nil {
			t.Fatal(err)
		}
	}
	if g.enter(maxStrangers, stranger(maxStrangers)) == nil {
		t.Error("there is no limit")
	}
	minion := stranger(maxStrangers)
	minion.Role = bus.RoleMinion
	if err := g.enter(maxStrangers, minion); err != nil {
		t.Errorf("strangers are in the way of a minion: %v", err)
	}
	for _, id := range []uint64{maxStrangers, 7} {
		if _, ok := g.leave(id); !ok {
			t.Errorf("connection %d was not booked", id)
		}
	}
	if err := g.enter(7, stranger(7)); err != nil {
		t.Errorf("the end of a connection freed no place: %v", err)
	}
}

// What nobody decided to allow is denied: the server takes an empty list of
// allowed subjects for everything.
func TestPermissionsOfNobody(t *testing.T) {
	for _, i := range []bus.Identity{{}, {Role: "operator", Name: "x"}, {Role: bus.RoleMinion}, {Role: bus.RoleUser}, {Role: bus.RoleStranger}} {
		p := permissions(i)
		if len(p.Publish.Allow) > 0 || len(p.Publish.Deny) != 1 || p.Publish.Deny[0] != ">" {
			t.Errorf("%+v may publish %+v", i, p.Publish)
		}
		if len(p.Subscribe.Allow) > 0 || len(p.Subscribe.Deny) != 1 || p.Subscribe.Deny[0] != ">" {
			t.Errorf("%+v may subscribe to %+v", i, p.Subscribe)
		}
	}
}
