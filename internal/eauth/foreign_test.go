package eauth

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestForeignTokens: a token of another master is good for what this one would have let it be, for
// the same account of the same backend, and for nobody whose account cannot be told to be the same.
func TestForeignTokens(t *testing.T) {
	there := stubbed(t, &stub{account: Account{Name: "fred", Groups: []string{"ops"}, Version: "1"}}, "keep_acl_in_token: true\n")
	token := mustToken(t, there, 365*24*time.Hour)
	value, err := there.store.Get(t.Context(), tokenKey(token))
	if err != nil || !strings.Contains(string(value), "test.*") {
		t.Fatalf("the token has no rules of its own: %s, %v", value, err)
	}
	for name, c := range map[string]struct {
		here    Account
		lookErr error
		good    bool
	}{
		"the same account":               {Account{Name: "fred", Groups: []string{"web"}, Version: "1"}, nil, true},
		"another secret":                 {Account{Name: "fred", Version: "2"}, nil, false},
		"no mark":                        {Account{Name: "fred"}, nil, false},
		"an account that nobody can see": {Account{}, errUnknowable, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := stubbed(t, &stub{account: c.here, lookErr: c.lookErr}, "keep_acl_in_token: true\n")
			shaped, err := g.Foreign(value)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.store.Put(t.Context(), tokenKey(token), shaped); err != nil {
				t.Fatal(err)
			}
			grant, err := g.Token(t.Context(), token)
			if !c.good {
				if !errors.Is(err, ErrRefused) {
					t.Errorf("%+v, %v; want a refusal", grant, err)
				}
				return
			}
			if err != nil || grant.Rules != "" || strings.Join(grant.Groups, " ") != "web" || grant.Expires.After(time.Now().Add(25*time.Hour)) {
				t.Fatalf("%+v, %v", grant, err)
			}
			made, _, err := g.MakeToken(t.Context(), grant, 0, true)
			if err != nil {
				t.Fatal(err)
			}
			var s stored
			if b, err := g.store.Get(t.Context(), tokenKey(made)); err != nil || json.Unmarshal(b, &s) != nil || !s.Foreign {
				t.Errorf("what is made with it is not a foreign one: %s, %v", b, err)
			}
		})
	}
	g := stubbed(t, &stub{}, "")
	for _, bad := range []string{"", "null", "7", `{}`, `{"eauth":"nosuch","name":"fred","digest":"eA=="}`, `{"eauth":"sharedsecret","name":"fred"}`, `{"eauth":"sharedsecret","name":"a\nb","digest":"eA=="}`,
		`{"eauth":"sharedsecret","name":"fred","digest":"eA==","by":["","","","","","","","",""]}`} {
		if shaped, err := g.Foreign([]byte(bad)); err == nil {
			t.Errorf("%s is taken as %s", bad, shaped)
		}
	}
}
