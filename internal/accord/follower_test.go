package accord

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

func newKey(t *testing.T) *pki.PrivateKey {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// side is one of two masters: its journal, its key store and the decisions of both.
type side struct {
	t        *testing.T
	name     string
	keys     *keyring.Keyring
	journal  *journal.Journal
	broker   *broker.Broker
	follower *Follower
	table    *journal.MirroredTable // of the other one
	stop     func()
}

func linkTLS(t *testing.T, name string) *tls.Config {
	t.Helper()
	cert, err := newKey(t).Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true}
}

// newSide makes a master that has no contact with the other one yet.
func newSide(t *testing.T, name string) *side {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	b, err := broker.Start(broker.Options{
		Name: "test", StoreDir: t.TempDir(), Log: log, Admit: func(broker.Peer) bus.Identity { return bus.Identity{} },
		Link: &broker.LinkOptions{Listen: "127.0.0.1:0", TLS: linkTLS(t, name), Journal: name, Judge: func(c *x509.Certificate) (string, error) { return c.Subject.CommonName, nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	links, err := b.Links.Conn()
	if err != nil {
		t.Fatal(err)
	}
	link, err := j.NewLink(name, t.TempDir(), links, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	keys, err := keyring.Open(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	return &side{t: t, name: name, keys: keys, journal: j, broker: b}
}

// start starts to apply decisions.
func (s *side) start(accepts bool) {
	s.t.Helper()
	own, err := s.journal.Decisions(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	agreed, err := s.journal.Table(s.t.Context(), "agreed")
	if err != nil {
		s.t.Fatal(err)
	}
	if s.follower, err = Open(s.t.Context(), Options{Name: s.name, Own: own, Agreed: agreed, Keys: s.keys, Accepts: accepts, Log: slog.New(slog.NewTextHandler(s.t.Output(), nil))}); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan bool)
	follower := s.follower
	go func() { follower.Run(ctx); close(ended) }()
	s.stop = func() { cancel(); <-ended }
	s.t.Cleanup(s.stop)
}

// follow makes the side read the decisions of the other one.
func (s *side) follow(other *side) {
	s.t.Helper()
	m, err := broker.StartMirror(s.t.Context(), broker.MirrorOptions{Peer: other.broker.Links.Addr(), TLS: linkTLS(s.t, s.name), StoreDir: s.t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(m.Stop)
	until(s.t, "the link stands", m.Linked)
	table, err := journal.OpenDecisions(s.t.Context(), m.Conn(), bus.Link{Owner: other.name, Reader: s.name})
	if err != nil {
		s.t.Fatal(err)
	}
	s.table = table
	s.follower.Follow(other.name, table)
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline.Until(t, is, what)
}

// does applies an act of a person at this master to a key, whether or not the key was seen
// here.
func (s *side) does(act Act, id string, key pki.PublicKey) {
	s.t.Helper()
	e := s.entry(id, key)
	var err error
	if e.State == pki.Unknown {
		e = pki.Entry{ID: salt.MinionID(id), Key: key}
		e.State, _, err = s.keys.Store.SubmitFrom(pki.Submission{ID: e.ID, Key: key, Decided: true})
	}
	switch {
	case err != nil:
	case act == Accept:
		err = s.keys.Store.Accept(e)
	case act == Reject:
		err = s.keys.Store.Reject(e)
	case act == Delete:
		err = s.keys.Store.Delete(e)
	}
	if err != nil {
		s.t.Fatalf("%s %s at %s: %v", act, id, s.name, err)
	}
	s.changed(id, key)
}

func (s *side) changed(id string, key pki.PublicKey) {
	if s.follower != nil {
		s.follower.Changed([]keyring.Change{{Name: pki.Name{ID: salt.MinionID(id), Finger: key.SHA256()}}})
	}
}

func (s *side) entry(id string, key pki.PublicKey) pki.Entry {
	s.t.Helper()
	entries, err := s.keys.Store.Of(salt.MinionID(id))
	if err != nil {
		s.t.Fatal(err)
	}
	return find(entries, pki.Name{ID: salt.MinionID(id), Finger: key.SHA256()})
}

// comes waits until a key has this state.
func (s *side) comes(id string, key pki.PublicKey, want pki.State) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%s is %s at %s", id, want, s.name), func() bool { return s.entry(id, key).State == want })
}

// decided waits until an act at this master is stored as a decision.
func (s *side) decided(id string, key pki.PublicKey, act Act) {
	s.t.Helper()
	name := keyOf(pki.Name{ID: salt.MinionID(id), Finger: key.SHA256()})
	until(s.t, fmt.Sprintf("%s of %s at %s", act, id, s.name), func() bool {
		own, _, _, _ := s.follower.at(name)
		return own.Act == act
	})
}

// TestTwoMastersAgree: decisions from before the first contact, and later ones. The bodies of
// the rows are the acts at one or the other master.
func TestTwoMastersAgree(t *testing.T) {
	a, b := newSide(t, "a"), newSide(t, "b")
	key, second := newKey(t).Public(), newKey(t).Public()
	const none = pki.Unknown
	apart := []struct {
		id           string
		atA, atB     []Act
		wantA, wantB pki.State
	}{
		{"nothing", nil, nil, none, none},
		{"accepted", []Act{Accept}, nil, pki.Accepted, pki.Accepted},
		{"accepted-by-b", nil, []Act{Accept}, pki.Accepted, pki.Accepted},
		{"accepted-by-both", []Act{Accept}, []Act{Accept}, pki.Accepted, pki.Accepted},
		{"rejected", []Act{Reject}, nil, pki.Rejected, pki.Rejected},
		{"they-differ", []Act{Accept}, []Act{Reject}, pki.Rejected, pki.Rejected},
		{"they-differ-too", []Act{Reject}, []Act{Accept}, pki.Rejected, pki.Rejected},
	}
	for _, row := range apart {
		for _, act := range row.atA {
			a.does(act, row.id, key)
		}
		for _, act := range row.atB {
			b.does(act, row.id, key)
		}
	}
	// Before the first contact, one of them has also deleted what the other one has accepted.
	a.start(true)
	b.start(true)
	for _, s := range []*side{a, b} {
		s.does(Accept, "deleted", key)
		s.decided("deleted", key, Accept)
	}
	a.does(Delete, "deleted", key)
	a.decided("deleted", key, Delete)
	a.does(Accept, "two-keys", key)
	b.does(Accept, "two-keys", second)
	a.decided("two-keys", key, Accept)
	b.decided("two-keys", second, Accept)
	a.follow(b)
	b.follow(a)
	for _, row := range apart {
		a.comes(row.id, key, row.wantA)
		b.comes(row.id, key, row.wantB)
	}
	b.comes("deleted", key, none)
	a.comes("deleted", key, none)

	// A decision made with knowledge of the other one counts, at whichever master it is made.
	a.does(Accept, "web1", key)
	b.comes("web1", key, pki.Accepted)
	b.does(Delete, "web1", key)
	a.comes("web1", key, none)
	b.does(Accept, "web1", key)
	a.comes("web1", key, pki.Accepted)
	a.does(Reject, "web1", key)
	b.comes("web1", key, pki.Rejected)
	b.does(Accept, "web1", key)
	a.comes("web1", key, pki.Accepted)

	// If each has accepted another key for an id, each keeps its own until somebody deletes it.
	if a.entry("two-keys", key).State != pki.Accepted || b.entry("two-keys", second).State != pki.Accepted {
		t.Error("a pinned key has given way to one of the other master")
	}
	b.does(Delete, "two-keys", second)
	a.does(Reject, "fence", key)
	b.comes("fence", key, pki.Rejected)
	if got := a.entry("two-keys", key).State; got != pki.Accepted {
		t.Errorf("another key of the same id is %s", got)
	}

	// One of them was down, and a person has decided there while its daemon was not running.
	b.stop()
	b.does(Delete, "accepted", key)
	a.does(Reject, "accepted-by-b", key)
	b.start(true)
	b.follower.Follow(a.name, b.table)
	a.comes("accepted", key, none)
	b.comes("accepted-by-b", key, pki.Rejected)
}

// TestADecisionOfARuleIsKnownAsThatAtTheOtherMaster: anybody can cause such ones, and they are gathered there, too.
func TestADecisionOfARuleIsKnownAsThatAtTheOtherMaster(t *testing.T) {
	a, b := newSide(t, "a"), newSide(t, "b")
	if err := a.keys.Configure(&config.Master{AutoAccept: true}); err != nil {
		t.Fatal(err)
	}
	key := newKey(t).Public()
	a.start(true)
	b.start(true)
	a.follow(b)
	b.follow(a)
	if v, err := a.keys.Admit("ruled", key, "192.0.2.66:1", "192.0.2.66"); err != nil || v.State != pki.Accepted {
		t.Fatalf("%+v, %v", v, err)
	}
	a.follower.Changed(a.keys.Take())
	a.does(Accept, "chosen", key)
	for id, want := range map[salt.MinionID]string{"ruled": "a rule of the master a", "chosen": ""} {
		b.comes(string(id), key, pki.Accepted)
		if who, rule := b.keys.TakeAction(pki.Name{ID: id, Finger: key.SHA256()}, keyring.Accept); rule != want || who.Source != "the master a" || who.Elsewhere {
			t.Errorf("%s is by %+v and %q, want %q", id, who, rule, want)
		}
	}
}

// TestRefusalsAlone: a master that does not accept the other one's acceptances applies its
// refusals, and none of its acceptances, not even of keys that it refused before.
func TestRefusalsAlone(t *testing.T) {
	a, b := newSide(t, "a"), newSide(t, "b")
	key := newKey(t).Public()
	b.does(Reject, "refused", key)
	b.does(Accept, "web1", key)
	a.start(true)
	b.start(false)
	a.follow(b)
	b.follow(a)
	a.comes("refused", key, pki.Rejected)
	a.comes("web1", key, pki.Accepted)
	a.does(Accept, "refused", key)
	a.does(Accept, "new", key)
	a.decided("refused", key, Accept)
	a.decided("new", key, Accept)
	b.does(Reject, "kept", key)
	a.comes("kept", key, pki.Rejected)
	a.does(Delete, "kept", key) // after that, a rule of the other one might accept it
	a.decided("kept", key, Delete)
	a.does(Reject, "web1", key)
	b.comes("web1", key, pki.Rejected)
	// What was sent before the fences was handled in the same round as the first fence, or
	// earlier.
	for _, fence := range []string{"fence1", "fence2"} {
		a.does(Reject, fence, key)
		b.comes(fence, key, pki.Rejected)
	}
	if got := b.entry("new", key).State; got != pki.Unknown {
		t.Errorf("what the other one accepts is %s", got)
	}
	for _, id := range []string{"refused", "kept"} {
		if got := b.entry(id, key).State; got != pki.Rejected {
			t.Errorf("%s, which was rejected here, is %s", id, got)
		}
	}
}

// TestFalseDecisions: entries of an attacker who has the other master's key.
func TestFalseDecisions(t *testing.T) {
	b := newSide(t, "b")
	mine, eves, barred := newKey(t).Public(), newKey(t).Public(), newKey(t).Public()
	b.does(Accept, "taken", mine)
	b.does(Reject, "refused", eves)
	b.start(true)
	tokens, err := b.journal.Table(t.Context(), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	b.decided("refused", eves, Reject)
	b.stop() // the test handles what is received itself
	shared := b.follower.Tokens(tokens)
	shared.Foreign = func(value []byte) ([]byte, error) { return value, nil }
	b.follower.Follow("a", nil)
	text := func(k pki.PublicKey) string { return string(k.PEM()) }
	hear := func(key string, e any) {
		value, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.follower.hear("a", key, value)
		b.follower.hear("c", "key "+eves.SHA256()+" from-elsewhere", value) // this journal is not followed
	}
	accept := Decision{Act: Accept, N: 1}
	hear(keyOf(pki.Name{ID: "taken", Finger: eves.SHA256()}), entry{Decision: accept, Key: text(eves)})
	hear(keyOf(pki.Name{ID: "false", Finger: mine.SHA256()}), entry{Decision: accept, Key: text(eves)})
	hear(keyOf(pki.Name{ID: "nokey", Finger: eves.SHA256()}), entry{Decision: accept, Key: "nonsense"})
	hear(keyOf(pki.Name{ID: "act", Finger: eves.SHA256()}), entry{Decision: Decision{Act: "own", N: 1}, Key: text(eves)})
	hear(keyOf(pki.Name{ID: "zero", Finger: eves.SHA256()}), entry{Decision: Decision{Act: Accept}, Key: text(eves)})
	hear(keyOf(pki.Name{ID: "refused", Finger: eves.SHA256()}), entry{Decision: Decision{Act: Accept, N: 1 << 62, Seen: 1 << 62, Of: "b"}, Key: text(eves)})
	hear(keyOf(pki.Name{ID: "big", Finger: eves.SHA256()}), entry{Decision: accept, Key: text(eves), By: strings.Repeat("x", maxEntry)})
	for _, id := range []string{"../../x", "a/b", "", ".", "a\x00", "a b", strings.Repeat("x", 300), "web1\n"} {
		hear("key "+barred.SHA256()+" "+id, entry{Decision: accept, Key: text(barred)})
	}
	sum := sha256.Sum256([]byte("x"))
	for _, id := range []string{"clock", "", "../clock", strings.Repeat("z", 64), hex.EncodeToString(sum[:]) + "0"} {
		hear(tokenPrefix+id, entry{Decision: Decision{Act: Issue, N: 1}, Token: json.RawMessage(`{}`)})
		hear(tokenPrefix+id, entry{Decision: Decision{Act: Revoke, N: 1}})
	}
	good := keyOf(pki.Name{ID: "good", Finger: eves.SHA256()})
	hear(good, entry{Decision: accept, Key: text(eves)})
	b.round()
	entries, problems, err := b.keys.Store.List()
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.ID, " ", e.State, " ", e.Key == eves))
	}
	if want := []string{"good accepted true", "refused rejected true", "taken accepted false"}; !slices.Equal(got, want) {
		t.Errorf("the store has %q, want %q", got, want)
	}
	if err := tokens.Each(t.Context(), func(key string, value []byte) { t.Errorf("there is a token %q: %s", key, value) }); err != nil {
		t.Error(err)
	}
}

// TestTokensOfTwoMasters: a token of one is stored at the other, once; revoking it at one
// revokes it at both; and one that was forgotten at only one of them is forgotten only there.
func TestTokensOfTwoMasters(t *testing.T) {
	a, b := newSide(t, "a"), newSide(t, "b")
	stores := map[*side]*Tokens{}
	for _, s := range []*side{a, b} {
		s.start(true)
		s.stop()
		table, err := s.journal.Table(t.Context(), "tokens")
		if err != nil {
			t.Fatal(err)
		}
		stores[s] = s.follower.Tokens(table)
		stores[s].Foreign = func(value []byte) ([]byte, error) { return append(value, ' '), nil }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { s.follower.Run(ctx); close(ended) }()
		t.Cleanup(func() { cancel(); deadline.Receive(t, ended, "ended") })
	}
	a.follow(b)
	b.follow(a)
	id := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	put := func(s *side, token string) {
		value := fmt.Sprintf(`{"name":"fred","expire":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		if err := stores[s].Keep(t.Context(), id(token), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	there := func(s *side, token string, want bool) {
		t.Helper()
		until(t, fmt.Sprintf("%s at %s: %v", token, s.name, want), func() bool {
			value, err := stores[s].Get(t.Context(), id(token))
			return err == nil && (value != nil) == want
		})
	}
	for _, token := range []string{"one", "two", "three"} {
		put(a, token)
		there(b, token, true)
	}
	if value, err := stores[b].Get(t.Context(), id("one")); err != nil || !strings.HasSuffix(string(value), " ") {
		t.Errorf("it was not shaped: %q, %v", value, err)
	}
	if err := stores[b].Revoke(t.Context(), id("one")); err != nil {
		t.Fatal(err)
	}
	there(a, "one", false)
	if err := stores[a].Revoke(t.Context(), id("two")); err != nil {
		t.Fatal(err)
	}
	there(b, "two", false)
	if err := stores[b].Delete(t.Context(), id("three")); err != nil {
		t.Fatal(err)
	}
	put(a, "fence")
	there(b, "fence", true)
	there(b, "three", false)
	there(a, "three", true)
	if err := stores[a].Put(t.Context(), "clock", []byte("now")); err != nil { // this is not a token
		t.Fatal(err)
	}
}
