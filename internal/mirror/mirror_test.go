package mirror

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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
	port    int
	journal *journal.Journal
	stop    func()
}

func (s system) owner(key *pki.PrivateKey, port int) owner {
	s.t.Helper()
	dir, log := s.t.TempDir(), slog.New(slog.DiscardHandler)
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
	l, err := j.NewLink(m.Journal, links, log)
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
	stop := func() { l.Close(); j.Close(); b.Stop() }
	s.t.Cleanup(stop)
	return owner{m.Journal, port, j, stop}
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
// was mirrored stays, and waits for its owner no more; the new one is mirrored beside it. The
// other master and the signing pair have RSA keys.
func TestANewJournalOfTheOtherMasterIsNoticed(t *testing.T) {
	s := newSystem(t, pki.RSA, 2048)
	key := newKey(t, pki.RSA, 2048)
	first := s.owner(key, 0)
	first.add(t, "old")
	found := make(chan *journal.Mirror, 10)
	own, _ := s.member(newKey(t, pki.Ed25519, 0), t.TempDir(), "127.0.0.1:1", 0)
	ctx, cancel := context.WithCancel(t.Context())
	reading := accordOf(t, own, s.owner(newKey(t, pki.Ed25519, 0), 0).journal)
	k, err := Open(ctx, Options{
		Peer: net.JoinHostPort("127.0.0.1", strconv.Itoa(first.port)), Member: own, Dir: t.TempDir(), Found: func(m *journal.Mirror) { found <- m }, Tell: func(Change) {}, Accord: reading, Cut: func() {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() { k.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); deadline.Receive(t, ended, "ended"); k.Close() })
	old := next(t, found, first.name)
	has(t, old, "old")
	first.stop()
	second := s.owner(key, first.port)
	second.add(t, "new")
	has(t, next(t, found, second.name), "new")
	has(t, old, "old")
	if !eventually(func() bool { return k.Linked(second.name) }) || k.Linked(first.name) {
		t.Errorf("linked: the old journal %v, the new one %v", k.Linked(first.name), k.Linked(second.name))
	}
	if !eventually(func() bool { p, err := old.Progress(t.Context()); return err == nil && p.Active < 0 }) {
		t.Error("the mirror of the old journal still waits for its owner")
	}
}

// accordOf is what a master has decided whose key store is empty.
func accordOf(t *testing.T, m *Member, j *journal.Journal) *Accord {
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
	return a
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

// has waits until a mirror has an event as its first, and no other.
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
		if taken := k.peer.Load() != nil; taken != good || (err == nil) != good {
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
	k, err := Open(t.Context(), Options{
		Peer: net.JoinHostPort("127.0.0.1", strconv.Itoa(first.port)), Member: own, Dir: t.TempDir(), Found: func(*journal.Mirror) {}, Tell: func(Change) {},
		Accord: accordOf(t, own, first.journal), Cut: func() {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if !eventually(k.server.Linked) || !k.judge() {
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
