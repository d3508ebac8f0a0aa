package libpam

import (
	"testing"

	"github.com/brinebus/brine/internal/pam"
)

// The users who are let in are in the scripts of package e2e, which make some.
func TestUsersWhoDoNotExist(t *testing.T) {
	if _, err := load(); err != nil {
		t.Skipf("this machine has no PAM: %v", err)
	}
	for _, q := range []pam.Question{
		{Service: "login", User: "brine-no-such-user", Password: "x"},
		{Service: "login", User: "brine-no-such-user", AccountOnly: true},
		{Service: "brine-no-such-service", User: "brine-no-such-user", Password: ""},
		{Service: "login", User: "root", Password: ""},
		{Service: "", User: "root", AccountOnly: true},
		{Service: "login", User: "", AccountOnly: true},
		{Service: "login", User: "root\x00x", AccountOnly: true},
	} {
		if a, err := Ask(q); a.Allowed || err != nil || a.Step == "" {
			t.Errorf("Ask(%+v) = %+v, %v; want a refusal with its step", q, a, err)
		}
	}
}
