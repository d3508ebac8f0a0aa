package login

import (
	"fmt"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eauth"
)

// TestLoginsOfConnections: a login belongs to one connection, a challenge can be used once, and
// the connection promised to a guest is forgotten when the guest's own connection ends, unless
// it has come.
func TestLoginsOfConnections(t *testing.T) {
	var l sessions
	grant := &eauth.Grant{Backend: "pam"}
	if l.of("a") != nil || l.takeChallenge("a") != nil {
		t.Error("there is a login or a challenge that nobody has made")
	}
	first, second := l.challenge("a"), l.challenge("a")
	if slices.Equal(first, second) || len(second) != challengeBytes {
		t.Errorf("challenges %x and %x", first, second)
	}
	if got := l.takeChallenge("b"); got != nil {
		t.Error("the challenge of one connection is that of another")
	}
	if got := l.takeChallenge("a"); !slices.Equal(got, second) {
		t.Errorf("the challenge is %x, want the last one", got)
	}
	if l.takeChallenge("a") != nil {
		t.Error("a challenge is answered twice")
	}
	l.set("a", grant, "192.0.2.1")
	l.set("a", grant, "")
	if l.of("a") != grant || l.of("b") != nil || l.address("a") != "" {
		t.Error("a login is of another connection, or keeps the address of one before")
	}
	for i, came := range []bool{false, true} {
		guest, next := fmt.Sprint("guest", i), fmt.Sprint("next", i)
		if err := l.promise(guest, next, grant); err != nil {
			t.Fatal(err)
		}
		if l.promise(guest, "more", grant) == nil || l.promise("other", next, grant) == nil {
			t.Error("a guest logs in twice, or two are promised one connection")
		}
		l.drop(guest, func(string) bool { return came })
		if (l.of(next) != nil) != came {
			t.Errorf("the promised connection has come: %v; it has a login: %v", came, l.of(next) != nil)
		}
	}
	l.drop("a", func(string) bool { return false })
	if l.of("a") != nil {
		t.Error("a login outlives its connection")
	}
}

// TestWhoseLimitsALoginCountsFor: users whom one program has logged in, each for a client at an address, have limits of their
// own; a login of the program's own user, and a connection without one, have those of that user.
func TestWhoseLimitsALoginCountsFor(t *testing.T) {
	var l Logins
	of := func(nonce, user, address string) string {
		i := bus.Identity{Role: bus.RoleUser, Name: "33", Nonce: nonce}
		if user != "" {
			l.sessions.set(i.Inbox(), &eauth.Grant{Backend: "pam", Account: eauth.Account{Name: user}}, address)
		}
		return l.Quota(i)
	}
	fred, ann, again := of("a", "fred", "192.0.2.1"), of("b", "ann", "192.0.2.1"), of("c", "fred", "192.0.2.2")
	if fred == "" || fred == ann || fred != again {
		t.Errorf("the limits of fred are those of %q, of ann %q, and of fred at another address %q", fred, ann, again)
	}
	if own, none := of("d", "fred", ""), of("e", "", ""); own != "" || none != "" {
		t.Errorf("a login of the user itself has the limits of %q, and a connection without one of %q", own, none)
	}
}
