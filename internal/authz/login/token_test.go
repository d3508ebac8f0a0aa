package login

import (
	"testing"

	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/runner"
)

// principal is the sender of requests for tokens.
type principal struct {
	name     string
	operator bool
	login    *Session
}

func (a principal) Name() string    { return a.name }
func (a principal) Operator() bool  { return a.operator }
func (a principal) Login() *Session { return a.login }

// TestTokensOfOthers: a principal with a login makes tokens for that login; without one only
// operators can.
func TestTokensOfOthers(t *testing.T) {
	grant := &eauth.Grant{Backend: "pam", Account: eauth.Account{Name: "fred"}}
	fred := principal{"fred", false, &Session{Grant: grant}}
	for name, c := range map[string]struct {
		who           principal
		user, backend string
	}{
		"a login, another user":    {fred, "ada", "pam"},
		"a login, another backend": {fred, "fred", "ldap"},
		"no login":                 {principal{name: "fred"}, "fred", "pam"},
		"root, nobody":             {principal{name: "root", operator: true}, "", "pam"},
		"root, no backend":         {principal{name: "root", operator: true}, "fred", ""},
	} {
		if _, secret, err := (tokens{who: c.who}).Make(t.Context(), runner.NewToken{User: c.user, Backend: c.backend}); err == nil || secret != "" {
			t.Errorf("%s: a token is made", name)
		}
	}
	own := ownTokens{who: principal{name: "fred"}}
	if list, err := own.List(t.Context()); len(list) > 0 || err != nil {
		t.Errorf("tokens of no login: %v, %v", list, err)
	}
	if own.Delete(t.Context(), "5f3a0c11") == nil {
		t.Error("a token is deleted without a login")
	}
}
