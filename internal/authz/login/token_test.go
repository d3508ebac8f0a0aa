package login

import (
	"testing"

	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/runner"
)

// asker is who asks for tokens.
type asker struct {
	name     string
	operator bool
	login    *eauth.Grant
}

func (a asker) Name() string        { return a.name }
func (a asker) Operator() bool      { return a.operator }
func (a asker) Login() *eauth.Grant { return a.login }

// TestTokensOfOthers: who has a login makes tokens of that, and without one nobody but operators.
func TestTokensOfOthers(t *testing.T) {
	grant := &eauth.Grant{Backend: "pam", Account: eauth.Account{Name: "fred"}}
	fred := asker{"fred", false, grant}
	for name, c := range map[string]struct {
		who           asker
		user, backend string
	}{
		"a login, another user":    {fred, "ada", "pam"},
		"a login, another backend": {fred, "fred", "ldap"},
		"no login":                 {asker{name: "fred"}, "fred", "pam"},
		"root, nobody":             {asker{name: "root", operator: true}, "", "pam"},
		"root, no backend":         {asker{name: "root", operator: true}, "fred", ""},
	} {
		if _, secret, err := (tokens{who: c.who}).Make(t.Context(), runner.NewToken{User: c.user, Backend: c.backend}); err == nil || secret != "" {
			t.Errorf("%s: a token is made", name)
		}
	}
	own := ownTokens{who: asker{name: "fred"}}
	if list, err := own.List(t.Context()); len(list) > 0 || err != nil {
		t.Errorf("tokens of no login: %v, %v", list, err)
	}
	if own.Delete(t.Context(), "5f3a0c11") == nil {
		t.Error("a token is deleted without a login")
	}
}
