package accord

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// still makes a side whose Run is not started: round does its work.
func still(t *testing.T, name, other string) *side {
	t.Helper()
	s := newSide(t, name)
	s.start(true)
	s.stop()
	s.follower.Follow(other, nil)
	return s
}

// tells handles an entry of the other master.
func (s *side) tells(from, key string, e entry) {
	s.t.Helper()
	if e.N == 0 {
		e.N = newN()
	}
	value, err := json.Marshal(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.follower.hear(from, key, value)
}

// round applies everything that is due.
func (s *side) round() {
	s.t.Helper()
	s.follower.gather()
	for s.follower.round(s.t.Context(), acceptTime) {
	}
}

func named(id string, key pki.PublicKey) string {
	return keyOf(pki.Name{ID: salt.MinionID(id), Finger: key.SHA256()})
}

// TestAFloodOfDecisions: the other master, or people who bring it keys that its rules accept or
// reject, decide about any number of things that this master does not have. What is remembered,
// stored and written to files is limited, the log says so, and what this master has can still
// be refused.
func TestAFloodOfDecisions(t *testing.T) {
	b := still(t, "b", "a")
	tokens, err := b.journal.Table(t.Context(), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	b.follower.Tokens(tokens).Foreign = func(value []byte) ([]byte, error) { return value, nil }
	const most = 20
	var log bytes.Buffer
	b.follower.most, b.follower.opts.Log = most, slog.New(slog.NewTextHandler(&log, nil))
	key := newKey(t).Public()
	b.does(Accept, "here", key)
	b.round()
	for i := range 30 * most {
		id, token := fmt.Sprint("m", i), fmt.Sprintf("%s%064x", tokenPrefix, i)
		switch act := []Act{Reject, Accept, Delete, Issue, Revoke}[i%5]; act {
		case Issue, Revoke:
			b.tells("a", token, entry{Decision: Decision{Act: act}, Token: json.RawMessage(`{}`), Until: time.Now().Add(time.Hour)})
		default:
			b.tells("a", named(id, key), entry{Decision: Decision{Act: act}, Key: string(key.PEM())})
		}
		if i%7 == 0 {
			b.round()
			b.follower.retry(false)
		}
	}
	b.tells("a", named("here", key), entry{Decision: Decision{Act: Reject}, Key: string(key.PEM())})
	b.round()
	entries, _, err := b.keys.Store.List()
	if err != nil {
		t.Fatal(err)
	}
	stored, agreed := 0, 0
	if err := tokens.Each(t.Context(), func(string, []byte) { stored++ }); err != nil {
		t.Fatal(err)
	}
	if err := b.follower.opts.Agreed.(interface {
		Each(context.Context, func(string, []byte)) error
	}).Each(t.Context(), func(key string, _ []byte) {
		if key != directoryKey {
			agreed++
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(entries) + stored; n < most/2 || n > most+1 || agreed > most+1 {
		t.Errorf("there are %d keys, %d tokens and %d agreements, want some %d", len(entries), stored, agreed, most)
	}
	if n := len(b.follower.theirs); n > most+1 || len(b.follower.passed) > most {
		t.Errorf("%d decisions are remembered, %d were passed", n, len(b.follower.passed))
	}
	if got := b.entry("here", key).State; got != pki.Rejected {
		t.Errorf("a key that is here, which the other master rejects, is %s", got)
	}
	if text := log.String(); !strings.Contains(text, "too many keys and tokens") || strings.Count(text, "\n") > 4*maxComplaints {
		t.Errorf("the log has %d lines: %.500s", strings.Count(text, "\n"), text)
	}
}

// TestLiftsAreBounded: the other master alternately accepts and refuses the same key. In the
// end it is refused, and it is not accepted again and again.
func TestLiftsAreBounded(t *testing.T) {
	b := still(t, "b", "a")
	b.follower.most = 5
	key, lifted := newKey(t).Public(), 0
	for range 50 {
		for _, act := range []Act{Accept, Reject} {
			b.tells("a", named("web1", key), entry{Decision: Decision{Act: act}, Key: string(key.PEM())})
			b.round()
			if b.entry("web1", key).State == pki.Accepted {
				lifted++
			}
		}
	}
	if got := b.entry("web1", key).State; got != pki.Rejected || lifted == 0 {
		t.Errorf("it is %s, and was accepted %d times", got, lifted)
	}
	var a allowance
	begun := time.Now()
	for i := range 10 {
		if got := a.take(5, begun); got != (i < 5) {
			t.Errorf("take %d is %v", i, got)
		}
	}
	if !a.take(5, begun.Add(time.Second)) || a.take(5, begun.Add(-time.Hour)) {
		t.Error("what was done is not allowed again a second later, or is an hour before")
	}
}

// TestOldRefusalsAreForgotten: of the refusals without a key in the store, the oldest are
// forgotten, but not while the other master accepts the key or may do so.
func TestOldRefusalsAreForgotten(t *testing.T) {
	b := still(t, "b", "a")
	b.follower.most = 8 // half of them are kept
	key := newKey(t).Public()
	for i := range 10 {
		if err := b.follower.decide(t.Context(), named(fmt.Sprint("m", i), key), agreement{}, entry{Decision: Decision{Act: Delete}}); err != nil {
			t.Fatal(err)
		}
		e := b.follower.own[named(fmt.Sprint("m", i), key)]
		e.At = e.At.Add(time.Duration(i) * time.Minute)
		b.follower.own[named(fmt.Sprint("m", i), key)] = e
	}
	b.tells("a", named("m0", key), entry{Decision: Decision{Act: Accept}, Key: string(key.PEM())})
	left := func() (n int, first bool) {
		t.Helper()
		err := b.follower.opts.Own.Each(t.Context(), func(name string, _ []byte) { n++; first = first || name == named("m0", key) })
		if err != nil || n != len(b.follower.own) {
			t.Fatal(n, len(b.follower.own), err)
		}
		return n, first
	}
	b.follower.prune(t.Context())
	if n, first := left(); n != 5 || !first {
		t.Errorf("%d are left, that of the key which the other master accepts is: %v", n, first)
	}
	b.round()
	if got := b.entry("m0", key).State; got != pki.Unknown {
		t.Errorf("it is %s", got)
	}
	b.follower.most = 0
	b.follower.Ended() // whether it accepts m1 is unknown now
	b.follower.agreed[named("m9", key)] = agreement{Act: Delete, Of: "a"}
	b.follower.prune(t.Context())
	if n, first := left(); n != 2 || !first { // the other master is known to have accepted both once
		t.Errorf("%d are left, that of m0 is: %v", n, first)
	}
}

// TestAnEndedAcceptanceIsWithdrawn: one master deletes what both have accepted, and forgets
// that some time later; the acceptance of the other master does not take effect again.
func TestAnEndedAcceptanceIsWithdrawn(t *testing.T) {
	a, b := newSide(t, "a"), newSide(t, "b")
	key := newKey(t).Public()
	for _, s := range []*side{a, b} {
		s.start(true)
		s.does(Accept, "web1", key)
		s.decided("web1", key, Accept)
	}
	a.follow(b)
	b.follow(a)
	a.does(Delete, "web1", key)
	b.comes("web1", key, pki.Unknown)
	b.decided("web1", key, Withdrawn)
	// Each master gets the later decisions of the other one after the earlier ones.
	b.does(Reject, "fence", key)
	a.comes("fence", key, pki.Rejected)
	a.stop()
	a.follower.most = 0
	a.follower.prune(t.Context())
	if own, other, _, _ := a.follower.at(named("web1", key)); own.Act != "" || other.Act != "" {
		t.Fatalf("left are %q and %q", own.Act, other.Act)
	}
	a.follower.due.markAll()
	a.round()
	if got := a.entry("web1", key).State; got != pki.Unknown {
		t.Errorf("the key is %s again", got)
	}
}

// TestARemovedMasterIsNotFollowed: earlier decisions that could not be applied yet are not
// applied later either, and further ones are ignored.
func TestARemovedMasterIsNotFollowed(t *testing.T) {
	b := still(t, "b", "a")
	mine, eves := newKey(t).Public(), newKey(t).Public()
	b.does(Accept, "web1", mine)
	b.tells("a", named("web1", eves), entry{Decision: Decision{Act: Accept}, Key: string(eves.PEM())})
	b.round()
	b.follower.Ended()
	b.follower.Ended()
	b.does(Delete, "web1", mine)
	b.tells("a", named("web2", eves), entry{Decision: Decision{Act: Accept}, Key: string(eves.PEM())})
	b.follower.retry(true)
	b.round()
	for _, id := range []string{"web1", "web2"} {
		if got := b.entry(id, eves).State; got != pki.Unknown {
			t.Errorf("%s of a removed master is %s", id, got)
		}
	}
}

// fullTable is a table on a full disk.
type fullTable struct{ Table }

func (fullTable) Keep(context.Context, string, []byte) error { return errors.New("no space left") }

// TestRefusalsOnAFullDisk: nothing can be stored, and refusals of the other master are applied
// nevertheless; an acceptance here that was made with knowledge of a refusal stays.
func TestRefusalsOnAFullDisk(t *testing.T) {
	b := still(t, "b", "a")
	key := newKey(t).Public()
	b.does(Accept, "old", key)
	b.tells("a", named("known", key), entry{Decision: Decision{Act: Reject}, Key: string(key.PEM())})
	b.round()
	b.follower.opts.Own, b.follower.opts.Agreed = fullTable{b.follower.opts.Own}, fullTable{b.follower.opts.Agreed}
	b.does(Accept, "new", key)
	b.does(Accept, "known", key)
	for _, id := range []string{"old", "new"} {
		b.tells("a", named(id, key), entry{Decision: Decision{Act: Reject}, Key: string(key.PEM())})
	}
	b.round()
	for id, want := range map[string]pki.State{"old": pki.Rejected, "new": pki.Rejected, "known": pki.Accepted} {
		if got := b.entry(id, key).State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}

// TestWhatWasRevokedStaysRevoked: the other master has restored an old copy of its journal, in
// which the token is still valid, or issues it again.
func TestWhatWasRevokedStaysRevoked(t *testing.T) {
	b := still(t, "b", "a")
	tokens, err := b.journal.Table(t.Context(), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	b.follower.Tokens(tokens).Foreign = func(value []byte) ([]byte, error) { return value, nil }
	token := tokenPrefix + strings.Repeat("ab", 32)
	tells := func(from string, act Act) {
		t.Helper()
		b.tells(from, token, entry{Decision: Decision{Act: act}, Token: json.RawMessage(`{}`), Until: time.Now().Add(time.Hour)})
		b.round()
	}
	there := func() bool {
		t.Helper()
		value, err := tokens.Get(t.Context(), token[len(tokenPrefix):])
		if err != nil {
			t.Fatal(err)
		}
		return value != nil
	}
	tells("a", Issue)
	if !there() {
		t.Fatal("it is not taken")
	}
	tells("a", Revoke)
	tells("a", Issue)
	b.follower.Follow("a-from-a-copy", nil)
	tells("a-from-a-copy", Issue)
	if there() {
		t.Error("it is back")
	}
	if own, _, _, _ := b.follower.at(token); own.Act != Revoke {
		t.Errorf("what the old journal has revoked is %q here, which the new one does not hear", own.Act)
	}
}

// flaky is a mirror that cannot be read at first, as on an overloaded machine.
type flaky struct {
	reads int
	key   string
	value []byte
}

func (f *flaky) Watch(ctx context.Context, hear func(string, []byte)) error {
	if f.reads++; f.reads == 1 {
		return context.DeadlineExceeded
	}
	hear(f.key, f.value)
	<-ctx.Done()
	return ctx.Err()
}

// TestAMirrorThatCannotBeReadIsReadAgain: nothing else would cause that, since the link is up.
func TestAMirrorThatCannotBeReadIsReadAgain(t *testing.T) {
	b := newSide(t, "b")
	key := newKey(t).Public()
	b.does(Accept, "web1", key)
	b.start(true)
	value, err := json.Marshal(entry{Decision: Decision{Act: Reject, N: 1}, Key: string(key.PEM())})
	if err != nil {
		t.Fatal(err)
	}
	b.follower.Follow("a", &flaky{key: named("web1", key), value: value})
	b.comes("web1", key, pki.Rejected)
}

// TestARefusalDoesNotWaitForAcceptances: the other master has accepted many keys, as at the first contact, and
// refuses one while these are carried out. It is in force after the next round, and each round ends soon.
func TestARefusalDoesNotWaitForAcceptances(t *testing.T) {
	b := still(t, "b", "a")
	const many = 5000
	key := newKey(t).Public()
	tells := func(act Act, id string) {
		t.Helper()
		b.tells("a", named(id, key), entry{Decision: Decision{Act: act}, Key: string(key.PEM())})
	}
	b.does(Accept, "z-deleted", key)
	b.does(Accept, "z-rejected", key)
	b.round()
	for i := range many {
		tells(Accept, fmt.Sprintf("m%04d", i))
	}
	round := func() {
		t.Helper()
		begun := time.Now()
		b.follower.gather()
		if !b.follower.round(t.Context(), time.Millisecond) {
			t.Fatalf("all %d acceptances took %s", many, time.Since(begun))
		}
	}
	round()
	tells(Reject, "z-rejected")
	b.does(Delete, "z-deleted", key)
	round()
	if got := b.entry("z-rejected", key).State; got != pki.Rejected {
		t.Errorf("what the other master has rejected is %s", got)
	}
	if own, _, _, _ := b.follower.at(named("z-deleted", key)); own.Act != Delete {
		t.Errorf("what was deleted here is told to the other master as %q", own.Act)
	}
}
