package eauth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Two members' files of users: the password is the same, "pässwörd 1", and the salt is not.
const (
	usersOfA = "fred:$5$EPazIaGGDtTmQjVF$jBX.wCw0BzliONdGE/PgqmeT0jHd7BMDw5xI1w87mH1\n"
	usersOfB = "fred:$2b$05$lMjrIxt0AIVGx8z4NLGaLeXbjlzYGSJRsgqSou34dXXMLaaHMkr4i\n"

	fileSettings = "external_auth: {file: {^filename: users, fred: [test.*]}}\n"
)

// twoMembers returns two members of a cluster that use one table; the settings and users are those of b.
func twoMembers(t *testing.T, settings, users string) (store *memory, a, b *Authenticator) {
	t.Helper()
	store = &memory{}
	a = newMember(t, store, "a", parse(t, load(t, fileSettings, usersOfA)))
	return store, a, newMember(t, store, "b", parse(t, load(t, settings, users)))
}

// tokenOfFile makes a token for the user of the files.
func tokenOfFile(t *testing.T, g *Authenticator, life time.Duration) string {
	t.Helper()
	login, err := g.Login(t.Context(), "1", "file", "fred", Proof{Secret: "pässwörd 1"})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := g.MakeToken(t.Context(), login, life, true)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A member that judges a token differently refuses it, and it stays valid at the others.
func TestAMemberEndsNoTokenOfTheOthers(t *testing.T) {
	for name, c := range map[string]struct{ settings, users string }{
		"another salt":      {fileSettings, usersOfB},
		"no such user":      {fileSettings, ""},
		"a locked user":     {fileSettings, strings.Replace(usersOfA, ":", ":!", 1)},
		"no such backend":   {"", ""},
		"the same accounts": {fileSettings, usersOfA},
	} {
		t.Run(name, func(t *testing.T) {
			_, a, b := twoMembers(t, c.settings, c.users)
			token := tokenOfFile(t, a, time.Hour)
			good := c.users == usersOfA
			for range 2 {
				if _, err := b.Token(t.Context(), token); (err == nil) != good || err != nil && !errors.Is(err, ErrRefused) {
					t.Fatalf("at the other member: %v, want it accepted: %t", err, good)
				}
				if err := b.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := a.Token(t.Context(), token); err != nil {
					t.Fatalf("where it was made: %v", err)
				}
			}
		})
	}
}

// A member whose clock is ahead, by less than a day, removes no token that is valid at the others.
func TestAMemberWithAnotherClockEndsNoToken(t *testing.T) {
	_, a, b := twoMembers(t, fileSettings, usersOfA)
	token := tokenOfFile(t, a, 12*time.Hour)
	b.clock.wall = func() time.Time { return time.Now().Add(13 * time.Hour) }
	if err := b.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Token(t.Context(), token); !errors.Is(err, ErrExpired) {
		t.Errorf("by the clock that is ahead: %v, want it expired", err)
	}
	if list, err := b.List(t.Context(), nil); err != nil || len(list) > 0 {
		t.Errorf("by the clock that is ahead: %v, %v are listed", list, err)
	}
	if _, err := a.Token(t.Context(), token); err != nil {
		t.Errorf("by the right clock: %v", err)
	}
}

// What has expired more than a day ago is removed, and so is at once what was made with a token that was deleted.
func TestMembersRemoveOldTokens(t *testing.T) {
	store, a, b := twoMembers(t, fileSettings, usersOfA)
	token := tokenOfFile(t, a, time.Hour)
	login, err := a.Token(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	child, _, err := a.MakeToken(t.Context(), login, time.Minute, true)
	if err != nil {
		t.Fatal(err)
	}
	left := func(when string, want ...string) {
		t.Helper()
		if err := b.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, one := range map[string]string{"the token": token, "what was made with it": child} {
			there := slices.Contains(tokensIn(store), tokenKey(one))
			if want := slices.Contains(want, one); there != want {
				t.Errorf("%s: %s is there: %t, want %t", when, name, there, want)
			}
		}
	}
	b.clock.wall = func() time.Time { return time.Now().Add(24*time.Hour + 30*time.Minute) }
	left("a day after the end of one", token)
	if child, _, err = a.MakeToken(t.Context(), login, time.Hour, true); err != nil {
		t.Fatal(err)
	}
	left("with another one", token, child)
	if err := a.Delete(t.Context(), TokenKey(tokenKey(token))); err != nil {
		t.Fatal(err)
	}
	left("after the other one was deleted")
}

// A token that is refused is refused again without any writing: whoever shows it must not keep the table busy.
func TestATokenThatAMemberRefusedIsNotNotedAgain(t *testing.T) {
	store, a, b := twoMembers(t, fileSettings, usersOfB)
	token := tokenOfFile(t, a, time.Hour)
	var before map[string][]byte
	for range 2 {
		before = maps.Clone(store.m)
		if _, err := b.Token(t.Context(), token); !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	}
	if !maps.EqualFunc(before, store.m, bytes.Equal) {
		t.Errorf("the table is %s, and was %s", store.m, before)
	}
}

// Tokens that a member refuses take no room from new ones: they do not count, and their number is limited,
// the ones that last longest staying.
func TestKeptTokensAreBounded(t *testing.T) {
	store, a, b := twoMembers(t, fileSettings, usersOfB)
	refused := tokenOfFile(t, a, 2*time.Hour)
	if _, err := b.Token(t.Context(), refused); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	expired := func(n int) string { return fmt.Sprintf("%064x", n) }
	for n := range maxOfUser {
		value, err := json.Marshal(stored{Backend: "file", User: "fred", Expires: time.Now().Add(-time.Hour + time.Duration(n)*time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Put(t.Context(), expired(n), value); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.tokensOf[lookKey("file", "fred")]; n != 0 || b.tokens != 0 {
		t.Errorf("%d tokens of the user count, and %d of all; want none", n, b.tokens)
	}
	if n := len(tokensIn(store)); n != maxOfUser {
		t.Errorf("%d tokens are kept, want %d", n, maxOfUser)
	}
	if store.m[expired(0)] != nil || store.m[expired(1)] == nil {
		t.Error("not the one that expired first was removed")
	}
	if _, err := a.Token(t.Context(), refused); err != nil {
		t.Errorf("the one that is valid elsewhere: %v", err)
	}
	tokenOfFile(t, b, time.Hour)
}

// A member that starts again continues its own time: not that of a member that is ahead, and not before its
// own one because a member is behind. Nor does it take the time that an older version has stored for all.
func TestAMemberTakesNoTimeOfTheOthers(t *testing.T) {
	store, backends := &memory{}, parse(t, load(t, secretSettings, ""))
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ahead, right, behind := start.Add(24*time.Hour), start, start.Add(-24*time.Hour)
	if err := store.Put(t.Context(), clockKey, []byte(ahead.Format(time.RFC3339Nano))); err != nil {
		t.Fatal(err)
	}
	var others []*Authenticator
	for name, wall := range map[string]*time.Time{"ahead": &ahead, "behind": &behind} {
		others = append(others, openAt(t, store, name, backends, wall))
	}
	open := func() *Authenticator {
		t.Helper()
		for _, other := range others {
			if err := other.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return openAt(t, store, "right", backends, &right)
	}
	g := open()
	dead, alive := mustToken(t, g, time.Hour), mustToken(t, g, 12*time.Hour)
	for range 2 {
		if _, err := g.Token(t.Context(), alive); err != nil {
			t.Errorf("a valid token: %v", err)
		}
		if now := g.clock.now(); now.Sub(start) > time.Minute {
			t.Errorf("it is %s, want about %s", now, start)
		}
		g = open()
	}
	right = start.Add(2 * time.Hour)
	if err := g.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	right = start
	g = open()
	if _, err := g.Token(t.Context(), dead); !errors.Is(err, ErrExpired) {
		t.Errorf("with the clock set back after its end: %v, want it expired", err)
	}
	if _, err := g.Token(t.Context(), alive); err != nil {
		t.Errorf("a valid token, with the clock set back: %v", err)
	}
	alone := openAt(t, store, "", backends, &right)
	if now := alone.clock.now(); now.Sub(start) > time.Minute {
		t.Errorf("at a single master that goes on with the table it is %s, want about %s", now, start)
	}
}
