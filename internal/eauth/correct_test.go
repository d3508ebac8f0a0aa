package eauth

import (
	"errors"
	"testing"
	"time"
)

// A member whose clock was a year ahead judges by the right time again when the others have the same, also
// if it was not restarted. What was made meanwhile is not valid for a year, and nothing that has expired is
// valid again.
func TestAClockThatWasAheadIsCorrected(t *testing.T) {
	store, backends := &memory{}, parse(t, load(t, secretSettings, ""))
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	wallA, wallB := start.AddDate(1, 0, 0), start
	a, b := openAt(t, store, "a", backends, &wallA), openAt(t, store, "b", backends, &wallB)
	sweep := func(list ...*Authenticator) {
		t.Helper()
		for _, g := range list {
			if err := g.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	isAt := func(when string, g *Authenticator, want time.Time) {
		t.Helper()
		if off := g.clock.now().Sub(want); off < 0 || off > time.Minute {
			t.Errorf("%s it is %s, want %s", when, g.clock.now(), want)
		}
	}
	refused := func(when string, g *Authenticator, token string, want error) {
		t.Helper()
		if _, err := g.Token(t.Context(), token); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", when, err, want)
		}
	}
	ahead := mustToken(t, a, 12*time.Hour)
	login := &Grant{Backend: "sharedsecret", Account: Account{Name: "fred"}, Issued: wallA, Expires: wallA.Add(time.Hour)}
	refused("of the clock that is ahead, at another member", b, ahead, errFuture)
	if _, err := a.Token(t.Context(), ahead); err != nil {
		t.Errorf("where it was made: %v", err)
	}

	// Nobody else tells the time: it does not go back.
	wallA, wallB = start.Add(2*time.Hour), start.Add(2*time.Hour)
	sweep(a)
	isAt("with the times of two hours ago alone", a, start.AddDate(1, 0, 0))
	restarted := openAt(t, store, "a", backends, &wallA)
	isAt("after a restart", restarted, start.AddDate(1, 0, 0))

	sweep(b, a, restarted)
	for when, g := range map[string]*Authenticator{"while it runs": a, "restarted": restarted, "restarted again": openAt(t, store, "a", backends, &wallA)} {
		isAt(when, g, wallA)
		refused(when+", of the time ahead", g, ahead, errFuture)
		if _, err := g.Check(t.Context(), login); !errors.Is(err, errFuture) {
			t.Errorf("%s, a login of the time ahead: %v", when, err)
		}
		if _, err := g.Token(t.Context(), mustToken(t, b, time.Hour)); err != nil {
			t.Errorf("%s, of another member: %v", when, err)
		}
	}

	// A clock that is set back meets the later time of another member.
	over := mustToken(t, b, time.Hour)
	wallB = wallB.Add(2 * time.Hour)
	wallA = wallB
	sweep(b, a)
	wallA = wallB.Add(-2 * time.Hour)
	sweep(b, a)
	isAt("set back, with another one that is not", a, wallB)
	sweep(openAt(t, store, "c", backends, &wallA), a)
	isAt("set back together with another one", a, wallB)
	refused("expired before it was set back", a, over, ErrExpired)
}

// TestTheClockOfAFormerMemberIsForgotten: a member with a clock that is ahead was removed. The clock of another one
// can be corrected again.
func TestTheClockOfAFormerMemberIsForgotten(t *testing.T) {
	store, backends := &memory{}, parse(t, load(t, secretSettings, ""))
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	wallA, wallB, wallC := start.AddDate(1, 0, 0), start, start.AddDate(2, 0, 0)
	a, b, c := openAt(t, store, "a", backends, &wallA), openAt(t, store, "b", backends, &wallB), openAt(t, store, "c", backends, &wallC)
	sweep := func() {
		t.Helper()
		for _, g := range []*Authenticator{b, a} {
			if err := g.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	wallA = start
	sweep()
	if a.clock.now().Sub(start) < time.Hour {
		t.Fatal("it is corrected against the time of another member")
	}
	for _, name := range []string{"c", "c", "a", "", "d"} {
		if err := a.Forget(t.Context(), name); err != nil {
			t.Errorf("forget %q: %v", name, err)
		}
	}
	sweep()
	if now := a.clock.now(); now.Sub(start) > time.Minute {
		t.Errorf("it is %s, and not corrected", now)
	}
	if latest, of, err := b.timeOfOthers(t.Context()); of != "a" {
		t.Errorf("the latest time of the others is %s, of %q, %v", latest, of, err)
	}
}

// Nobody tells a single master whether its clock was wrong before, or is wrong now.
func TestTheClockOfASingleMasterNeverGoesBack(t *testing.T) {
	store, backends := &memory{}, parse(t, load(t, secretSettings, ""))
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	wall := start.AddDate(1, 0, 0)
	for range 2 {
		g := openAt(t, store, "", backends, &wall)
		if err := store.Put(t.Context(), clockKey+"/b", []byte(start.Format(time.RFC3339Nano))); err != nil { // of the time when it was a member
			t.Fatal(err)
		}
		if err := g.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := g.clock.now(); now.Before(start.AddDate(1, 0, 0)) {
			t.Errorf("it is %s, a year too early", now)
		}
		if _, err := g.Token(t.Context(), mustToken(t, g, time.Hour)); err != nil {
			t.Errorf("a new token: %v", err)
		}
		wall = start
	}
}
