package bustest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/deadline"
)

// System is masters that form a cluster. Each has a loopback address of its own, so that it can
// be stopped and started at the same one.
type System struct {
	ID      string
	Signer  *pki.PrivateKey // master_sign, which all share
	Peers   []string        // addresses of the routes, as in cluster_peers
	Members []*Member

	mu      sync.Mutex
	removed member.Fingerprints
}

// Member is one of these masters; its Bus is nil until it is started.
type Member struct {
	*Bus
	Name   string
	Key    *pki.PrivateKey
	Dir    string // of its store
	System *System
	Change func(*broker.Options) // before it is started; nil changes nothing

	address string
	log     testing.TB
}

// routePort is the port of routes, on addresses that no other test has.
const routePort = 6222

// NewSystem makes the keys and addresses of n masters, none of which runs yet.
func NewSystem(t testing.TB, n int) *System {
	t.Helper()
	s := &System{ID: "c1", Signer: Key(t), removed: member.Fingerprints{}}
	for i := range n {
		ip := make(net.IP, 4)
		binary.BigEndian.PutUint32(ip, 127<<24|rand.Uint32N(1<<24-2)+2)
		m := &Member{Name: fmt.Sprintf("m%d", i+1), Key: Key(t), Dir: filepath.Join(t.TempDir(), "store"), System: s, log: t, address: fmt.Sprintf("%s:%d", ip, routePort)}
		s.Peers = append(s.Peers, m.address)
		s.Members = append(s.Members, m)
	}
	return s
}

// StartSystem starts n masters that form a cluster, and waits until they are linked.
func StartSystem(t testing.TB, n int) *System {
	t.Helper()
	s := NewSystem(t, n)
	s.Start(t)
	s.Linked(t)
	return s
}

// Start starts those that do not run, all at once.
func (s *System) Start(t testing.TB) {
	t.Helper()
	errs := make(chan error, len(s.Members))
	for _, m := range s.Members {
		go func() { errs <- m.start(t) }()
	}
	for range s.Members {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// Start starts one that does not run.
func (m *Member) Start(t testing.TB) {
	t.Helper()
	if err := m.start(t); err != nil {
		t.Fatal(err)
	}
}

func (m *Member) start(t testing.TB) error {
	if m.Bus != nil {
		return nil
	}
	cluster, err := m.Options()
	if err != nil {
		return err
	}
	o := broker.Options{Name: m.Name, StoreDir: m.Dir, Log: Log(t).With("member", m.Name), Cluster: cluster}
	if m.Change != nil {
		m.Change(&o)
	}
	b, err := open(o, m.Key, filepath.Join(t.TempDir(), "d.sock"))
	if err != nil {
		return fmt.Errorf("start member %s: %w", m.Name, err)
	}
	m.Bus = b
	t.Cleanup(b.Stop)
	return nil
}

// Stop ends a member in good order; Start brings it back.
func (m *Member) Stop() {
	m.Bus.Stop()
	m.Bus = nil
}

// Rule is the rule of a member of this system.
func (s *System) Rule(name string) member.Rule {
	return member.Rule{Card: member.NewCard(s.ID, name, "1.0"), Signer: s.Signer.Public(), Removed: s.gone}
}

// Options are what makes a broker this member.
func (m *Member) Options() (*broker.ClusterOptions, error) {
	signature, err := m.System.Signer.SignPublic(m.Key.Public())
	if err != nil {
		return nil, err
	}
	rule := m.System.Rule(m.Name)
	certificate, err := rule.Card.Certificate(m.Key, signature)
	if err != nil {
		return nil, err
	}
	return &broker.ClusterOptions{Rule: rule, Certificate: certificate, Listen: m.address, Peers: m.System.Peers}, nil
}

// Remove puts a key on the list of removed members that all read.
func (s *System) Remove(key pki.PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed[key.SHA256()] = true
}

// Isolate cuts a running member off from the others, as a broken network does, until Rejoin.
func (s *System) Isolate(t testing.TB, m *Member) {
	t.Helper()
	s.Remove(m.Key.Public())
	Until(t, m.Name+" is isolated", func() bool { return m.Cluster.Routes() == 0 })
}

// Rejoin lets an isolated member come back.
func (s *System) Rejoin(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.removed, m.Key.Public().SHA256())
}

// Kill ends a member as kill -9 does: the others hear nothing of it, and its files stay as they
// are at that moment. Start brings it back, once Rejoin lets it.
func (m *Member) Kill(t testing.TB) {
	t.Helper()
	m.System.Isolate(t, m)
	left := m.Dir + "-left"
	err := os.CopyFS(left, os.DirFS(m.Dir))
	for range 10 {
		if !errors.Is(err, os.ErrNotExist) { // of a file that the server has just put into the place of another one
			break
		}
		err = errors.Join(os.RemoveAll(left), os.CopyFS(left, os.DirFS(m.Dir)))
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Stop()
	if err := errors.Join(os.RemoveAll(m.Dir), os.Rename(left, m.Dir)); err != nil {
		t.Fatal(err)
	}
}

// Leader waits until the members that run have a leader, so that they can store.
func (s *System) Leader(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, m := range s.Members {
		if m.Bus != nil {
			if err := m.Cluster.Leader(ctx); err != nil {
				t.Fatal(m.Name, err)
			}
		}
	}
}

func (s *System) gone() (member.Fingerprints, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := member.Fingerprints{}
	for f := range s.removed {
		list[f] = true
	}
	return list, nil
}

// Linked waits until those that run have routes to each other.
func (s *System) Linked(t testing.TB) {
	t.Helper()
	running := 0
	for _, m := range s.Members {
		if m.Bus != nil {
			running++
		}
	}
	for _, m := range s.Members {
		if m.Bus != nil {
			Until(t, m.Name+" is linked with all others", func() bool { return m.Cluster.Routes() == running-1 })
		}
	}
}

// Until waits until something holds, as deadline.Until does.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline.Until(t, ok, what)
}
