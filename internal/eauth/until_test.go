package eauth

import (
	"testing"
	"time"
)

// TestDeletedTokensStayDeletedUntilTheyExpire: whatever the store loses, or a backup brings back, a token that was revoked does
// not come back while it would be valid by the clock of any member. What is stored of it is not kept for longer than that.
func TestDeletedTokensStayDeletedUntilTheyExpire(t *testing.T) {
	for _, member := range []string{"", "m1"} {
		store := &memory{}
		g := newMember(t, store, member, parse(t, load(t, "external_auth: {file: {^filename: users, x: [.*]}}\n", fileUsers)))
		login, err := g.Login(t.Context(), "", "file", "apache", Proof{Secret: "pässwörd 1"})
		if err != nil {
			t.Fatal(err)
		}
		issue := func() (key string, expires time.Time) {
			token, expires, err := g.MakeToken(t.Context(), login, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			return tokenKey(token), expires
		}
		revoked, expires := issue()
		if err := g.Delete(t.Context(), TokenKey(revoked)); err != nil {
			t.Fatal(err)
		}
		if until := store.gone[revoked]; !until.Equal(expires.Add(clockSkew)) {
			t.Errorf("member %q: a token that expires at %s is gone until %s", member, expires, until)
		}
		expired, expires := issue()
		g.clock.wall = func() time.Time { return time.Now().Add(time.Until(expires) + clockSkew + time.Minute) }
		if err := g.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if until, deleted := store.gone[expired]; !deleted || until.After(g.clock.now()) {
			t.Errorf("member %q: an expired token is deleted: %t, until %s", member, deleted, until)
		}
	}
}
