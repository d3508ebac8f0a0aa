package mirror

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/deadline"
)

// system is masters with one signing pair.
type system struct {
	t      *testing.T
	signer *pki.PrivateKey
}

func newSystem(t *testing.T, of pki.KeyType, size int) system { return system{t, newKey(t, of, size)} }

func newKey(t *testing.T, of pki.KeyType, size int) *pki.PrivateKey {
	t.Helper()
	key, err := pki.Generate(of, size)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// member makes a master of the system, with the journal that lies in dir.
func (s system) member(key *pki.PrivateKey, dir, peer string, port int) (*Member, *config.Master) {
	s.t.Helper()
	cfg := &config.Master{JournalMirror: peer, JournalMirrorPort: port, MasterSignPubkey: true, Interface: "127.0.0.1", RetPort: 1}
	cfg.PKIDir, cfg.MasterSignKeyName = s.t.TempDir(), "master_sign"
	if err := os.WriteFile(filepath.Join(cfg.PKIDir, "master_sign.pub"), s.signer.Public().PEM(), 0o644); err != nil {
		s.t.Fatal(err)
	}
	signature, err := s.signer.SignPublic(key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := NewMember(cfg, keyring.Own{PrivateKey: key, Signature: signature}, dir, "1.0", slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	return m, cfg
}

// owner is a master whose journal is mirrored.
type owner struct {
	name    string
	dir     string // of the journal
	port    int
	journal *journal.Journal
	conn    *nats.Conn
	member  *Member
	stop    func()
}

func (s system) owner(key *pki.PrivateKey, port int) owner {
	s.t.Helper()
	return s.ownerIn(s.t.TempDir(), key, port)
}

// ownerIn starts a master with the journal that lies in dir.
func (s system) ownerIn(dir string, key *pki.PrivateKey, port int) owner {
	s.t.Helper()
	log := slog.New(slog.DiscardHandler)
	m, cfg := s.member(key, dir, "127.0.0.1:1", port)
	b, err := broker.Start(broker.Options{Name: "test", StoreDir: dir, Log: log, Admit: func(broker.Peer) bus.Identity { return bus.Identity{} }, Link: m.Links(cfg)})
	if err != nil {
		s.t.Fatal(err)
	}
	j, err := journal.Open(s.t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	links, err := b.Links.Conn()
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := j.NewLink(m.Journal, dir, links, log)
	if err != nil {
		s.t.Fatal(err)
	}
	_, text, err := net.SplitHostPort(b.Links.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	if port, err = strconv.Atoi(text); err != nil {
		s.t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { l.Close(); j.Close(); b.Stop() })
	s.t.Cleanup(stop)
	return owner{m.Journal, dir, port, j, b.Conn(), m, stop}
}

func (o owner) add(t *testing.T, tag string) {
	t.Helper()
	e, err := event.New(tag, nil, "web1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.journal.Append(t.Context(), e, ""); err != nil {
		t.Fatal(err)
	}
}

// TestANewJournalOfTheOtherMasterIsNoticed: the other master comes back with an empty journal. What
// was mirrored stays, and the new one is mirrored beside it. Then it has its first journal again:
// that is mirrored on, and what is decided there is followed. What the mirror alone still has is
// kept. The other master and the signing pair have RSA keys.
func TestANewJournalOfTheOtherMasterIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name         string
		purge, ended bool
	}{
		{"the owner has lost what is mirrored", true, false},
		{"an earlier version has ended the mirror", false, true},
	} {
		t.Run(c.name, func(t *testing.T) { anotherJournal(t, c.purge, c.ended) })
	}
}

func anotherJournal(t *testing.T, purge, ended bool) {
	s := newSystem(t, pki.RSA, 2048)
	key := newKey(t, pki.RSA, 2048)
	first := s.owner(key, 0)
	first.add(t, "old")
	k, keys, found := s.keep(first.port)
	old := next(t, found, first.name)
	has(t, old, "old")
	if purge {
		first.purge(t)
	}
	first.stop()
	second := s.owner(key, first.port)
	second.add(t, "new")
	has(t, next(t, found, second.name), "new")
	has(t, old, "old")
	if !eventually(func() bool { return k.Linked(second.name) }) || k.Linked(first.name) {
		t.Errorf("linked: the old journal %v, the new one %v", k.Linked(first.name), k.Linked(second.name))
	}
	if ended {
		detach(t, k, first.name)
	}
	second.stop()
	again := s.ownerIn(first.dir, key, first.port)
	again.add(t, "again")
	has(t, old, "old again")
	if !eventually(func() bool { return k.Linked(first.name) }) {
		t.Error("the first journal is not linked again")
	}
	// What it decides is followed.
	e := pki.Entry{ID: "web1", Key: newKey(t, pki.Ed25519, 0).Public()}
	accept(t, keys, e)
	there, decided := accordOf(t, again.member, again.journal)
	run(t, there.Run)
	accept(t, decided, e)
	if err := decided.Store.Reject(stored(t, decided, e)); err != nil {
		t.Fatal(err)
	}
	there.Changed([]keyring.Change{{Name: pki.Name{ID: e.ID, Finger: e.Key.SHA256()}}})
	if !eventually(func() bool { return stored(t, keys, e).State == pki.Rejected }) {
		t.Error("what it rejects is not rejected here")
	}
}

// TestTooManyJournals: the error says how many journals are mirrored, and what to do.
func TestTooManyJournals(t *testing.T) {
	k := &Keeper{opts: Options{Dir: "/cache/mirror"}, all: map[string]*journal.Mirror{"m2-1": nil, "m2-2": nil, "m2-3": nil}}
	err := k.mirror(t.Context(), bus.Link{Owner: "m2-4", Reader: "m1"})
	if err == nil {
		t.Fatal("there is no limit")
	}
	for _, want := range []string{"3 earlier ones", "stop this master, remove the folder /cache/mirror, and start it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q, without %q", err, want)
		}
	}
}

// purge removes what is in the journal.
func (o owner) purge(t *testing.T) {
	t.Helper()
	js, err := jetstream.New(o.conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), journal.Stream)
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// keep starts what mirrors the journal of the other master, at this port, and follows its decisions.
func (s system) keep(port int) (*Keeper, *keyring.Keyring, <-chan *journal.Mirror) {
	s.t.Helper()
	found := make(chan *journal.Mirror, 10)
	own, _ := s.member(newKey(s.t, pki.Ed25519, 0), s.t.TempDir(), "127.0.0.1:1", 0)
	reading, keys := accordOf(s.t, own, s.owner(newKey(s.t, pki.Ed25519, 0), 0).journal)
	k, err := Open(s.t.Context(), Options{
		Peer: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Member: own, Dir: s.t.TempDir(), Found: func(m *journal.Mirror) { found <- m }, Tell: func(Change) {}, Accord: reading, Cut: func() {}, Log: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(k.Close)
	run(s.t, k.Run)
	run(s.t, reading.Run)
	return k, keys, found
}

// run runs f until the end of the test.
func run(t *testing.T, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan bool)
	go func() { f(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); deadline.Receive(t, ended, "ended") })
}

// detach ends a mirror as earlier versions did when the other master began another journal.
func detach(t *testing.T, k *Keeper, name string) {
	t.Helper()
	js, err := jetstream.New(k.server.Conn())
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "MIRROR_"+name)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Mirror, c.MirrorDirect = nil, false
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func accept(t *testing.T, keys *keyring.Keyring, e pki.Entry) {
	t.Helper()
	var err error
	if e.State, _, err = keys.Store.SubmitFrom(pki.Submission{ID: e.ID, Key: e.Key, Decided: true}); err == nil {
		err = keys.Store.Accept(e)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stored is what a key store has of a key.
func stored(t *testing.T, keys *keyring.Keyring, e pki.Entry) pki.Entry {
	t.Helper()
	list, err := keys.Store.Of(e.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, have := range list {
		if have.Key.Equal(e.Key) {
			return have
		}
	}
	return pki.Entry{}
}

// accordOf is what a master has decided whose key store is empty.
func accordOf(t *testing.T, m *Member, j *journal.Journal) (*Accord, *keyring.Keyring) {
	t.Helper()
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	keys, err := keyring.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a, err := m.OpenAccord(t.Context(), j, keys, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return a, keys
}

func next(t *testing.T, found <-chan *journal.Mirror, name string) *journal.Mirror {
	t.Helper()
	select {
	case m := <-found:
		if m.Name != name {
			t.Fatalf("the mirror is of %s, want %s", m.Name, name)
		}
		return m
	case <-time.After(time.Minute):
		t.Fatal("no mirror of ", name)
		return nil
	}
}

// has waits until a mirror has events with these tags, and no other.
func has(t *testing.T, m *journal.Mirror, tag string) {
	t.Helper()
	var tags []string
	if !eventually(func() bool {
		tags = nil
		err := m.Read(t.Context(), journal.Query{}, func(e event.Event) error { tags = append(tags, e.Tag); return nil })
		return err == nil && strings.Join(tags, " ") == tag
	}) {
		t.Fatalf("the mirror of %s has %v, want %s", m.Name, tags, tag)
	}
}

// eventually asks until it is so; what does not come is a hang.
func eventually(is func() bool) bool {
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// TestAFalseNameIsRefused: a master with a good key that gives its journal a name which is none,
// or which is that of this one, is not taken for the owner of a mirror.
func TestAFalseNameIsRefused(t *testing.T) {
	s := newSystem(t, pki.Ed25519, 0)
	own, _ := s.member(newKey(t, pki.Ed25519, 0), t.TempDir(), "127.0.0.1:1", 0)
	for name, good := range map[string]bool{
		"other-0a": true, own.Journal: false, "": false, "a.b": false, "*": false, ">": false, "a b": false, "../../x": false, "a\x00": false, "-a": false, strings.Repeat("a", 65): false, "a\r\nPUB x": false,
	} {
		key := newKey(t, pki.Ed25519, 0)
		signature, err := s.signer.SignPublic(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		cert, err := member.NewCard("", name, "1.0").Certificate(key, signature)
		if err != nil {
			continue // which no certificate can say
		}
		k := &Keeper{opts: Options{Member: own}}
		err = handshake(t, k.tls(), &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert})
		if taken := k.shown.Load() != nil; taken != good || (err == nil) != good {
			t.Errorf("%q: taken %v, %v", name, taken, err)
		}
	}
}

// TestARemovedMasterIsJudgedWhileAway: who was removed while they were not linked is not a master any more.
func TestARemovedMasterIsJudgedWhileAway(t *testing.T) {
	s := newSystem(t, pki.Ed25519, 0)
	key := newKey(t, pki.Ed25519, 0)
	first := s.owner(key, 0)
	own, cfg := s.member(newKey(t, pki.Ed25519, 0), t.TempDir(), "127.0.0.1:1", 0)
	reading, _ := accordOf(t, own, first.journal)
	k, err := Open(t.Context(), Options{
		Peer: net.JoinHostPort("127.0.0.1", strconv.Itoa(first.port)), Member: own, Dir: t.TempDir(), Found: func(*journal.Mirror) {}, Tell: func(Change) {},
		Accord: reading, Cut: func() {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if !eventually(k.prove) || !k.judge() {
		t.Fatal("it is not taken")
	}
	first.stop()
	if !eventually(func() bool { return !k.server.Linked() }) {
		t.Fatal("the link stands")
	}
	if err := os.WriteFile(member.RemovedFile(cfg.PKIDir), []byte(key.Public().SHA256()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k.judge() {
		t.Error("it is still a master")
	}
}

// TestALinkStaysWhileTheListIsUnread: a list of removed masters that cannot be read for a moment ends no link. It does
// after a while; and a master that is on the list is put out at once.
func TestALinkStaysWhileTheListIsUnread(t *testing.T) {
	t.Parallel()
	s := newSystem(t, pki.Ed25519, 0)
	key := newKey(t, pki.Ed25519, 0)
	first := s.owner(key, 0)
	own, cfg := s.member(newKey(t, pki.Ed25519, 0), t.TempDir(), "127.0.0.1:1", 0)
	reading, _ := accordOf(t, own, first.journal)
	var said bytes.Buffer
	k, err := Open(t.Context(), Options{
		Peer: net.JoinHostPort("127.0.0.1", strconv.Itoa(first.port)), Member: own, Dir: t.TempDir(), Found: func(*journal.Mirror) {}, Tell: func(Change) {},
		Accord: reading, Cut: func() {}, Log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if !eventually(k.prove) || !k.judge() {
		t.Fatal("it is not taken")
	}
	list := func(text string) {
		t.Helper()
		if err := os.WriteFile(member.RemovedFile(cfg.PKIDir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list("no fingerprint\n")
	began := time.Now()
	if !k.judge() || !k.server.Linked() {
		t.Error("the link is cut when the list cannot be read for the first time")
	}
	if !strings.Contains(said.String(), "cannot be judged") {
		t.Errorf("the log does not say why no new link is accepted: %s", said.String())
	}
	if !eventually(func() bool { return !k.judge() }) || time.Since(began) < member.UnreadTime {
		t.Errorf("the link is cut after %s, want some more than %s", time.Since(began), member.UnreadTime)
	}
	if !eventually(func() bool { return !k.server.Linked() }) {
		t.Error("the link stands while nobody can be judged")
	}
	list("")
	if !eventually(func() bool { return k.prove() && k.judge() }) {
		t.Fatal("it does not come back")
	}
	list(key.Public().SHA256() + "\n")
	if k.judge() || !eventually(func() bool { return !k.server.Linked() }) {
		t.Error("a removed master is not cut at once")
	}
}

// TestACertificateProvesNothing: whoever shows the certificate of the other master, and has not its
// key, is not taken for it, not even for a name in the log.
func TestACertificateProvesNothing(t *testing.T) {
	s := newSystem(t, pki.Ed25519, 0)
	other, _ := s.member(newKey(t, pki.Ed25519, 0), t.TempDir(), "127.0.0.1:1", 0)
	thief := other.tls.Clone()
	thief.Certificates = []tls.Certificate{{Certificate: other.tls.Certificates[0].Certificate, PrivateKey: newKey(t, pki.Ed25519, 0).Signer()}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		defer close(refused)
		if c, err := l.Accept(); err == nil {
			conn := tls.Server(c, thief)
			_, err := conn.Read(make([]byte, 1)) // in TLS 1.3 the client's alert comes after the server's part
			refused <- err
			conn.Close()
		}
	}()
	defer l.Close()
	k, _, _ := s.keep(l.Addr().(*net.TCPAddr).Port)
	if err := deadline.Receive(t, refused, "the end of the handshake"); err == nil {
		t.Error("the handshake has not failed")
	}
	if k.shown.Load() == nil {
		t.Fatal("the certificate was not shown")
	}
	if k.prove() || k.peer.Load() != nil {
		t.Error("it is taken for the other master")
	}
}

// handshake is what the client says of it.
func handshake(t *testing.T, client, server *tls.Config) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan bool)
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			_ = tls.Server(c, server).Handshake() // the client says what is wrong
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	err = tls.Client(c, client).Handshake()
	c.Close()
	deadline.Receive(t, done, "done")
	return err
}

// TestMembersHaveKeysOfEachKind: the rule and the handshake do with RSA what they do with Ed25519.
func TestMembersHaveKeysOfEachKind(t *testing.T) {
	s := newSystem(t, pki.Ed25519, 0)
	rsa, _ := s.member(newKey(t, pki.RSA, 2048), t.TempDir(), "127.0.0.1:1", 0)
	other, _ := s.member(newKey(t, pki.Ed25519, 0), t.TempDir(), "127.0.0.1:1", 0)
	for _, pair := range [][2]*Member{{rsa, other}, {other, rsa}} {
		if err := handshake(t, pair[0].tls, pair[1].tls); err != nil {
			t.Error(err)
		}
	}
	foreign, _ := newSystem(t, pki.Ed25519, 0).member(newKey(t, pki.Ed25519, 0), t.TempDir(), "127.0.0.1:1", 0)
	if err := handshake(t, rsa.tls, foreign.tls); err == nil {
		t.Error("a master of another system was taken")
	}
}
