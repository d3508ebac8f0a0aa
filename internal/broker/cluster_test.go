package broker_test

import (
	"crypto"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// TestThreeMastersFormACluster: each member has a route to each other one, also after all of
// them have dialled at once, and a request from one is answered by another.
func TestThreeMastersFormACluster(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	for i, m := range s.Members {
		names := []string{}
		for _, other := range m.Cluster.Members() {
			names = append(names, other.Name)
		}
		want := []string{"m2 m3", "m1 m3", "m1 m2"}[i]
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has routes to %q, want %q", m.Name, got, want)
		}
	}
	bustest.Until(t, "each knows which of the addresses is its own", func() bool {
		for i, m := range s.Members {
			if p := m.Cluster.Peers()[i]; !p.Self || p.Err != nil {
				return false
			}
		}
		return true
	})
	answers(t, s.Members[0].Bus, s.Members[2].Bus, bus.MembersSubject("question"))
}

// answers makes the daemon of one broker answer the daemon of another.
func answers(t *testing.T, to, by *bustest.Bus, subject string) {
	t.Helper()
	sub, err := by.Conn().Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte("answer")) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	bustest.Until(t, "an answer", func() bool {
		m, err := to.Conn().Request(subject, nil, time.Second)
		return err == nil && string(m.Data) == "answer"
	})
}

// TestAMemberThatComesBackIsLinkedAgain: a member stops normally and starts at the same
// address.
func TestAMemberThatComesBackIsLinkedAgain(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	m := s.Members[1]
	m.Stop()
	bustest.Until(t, "the others notice", func() bool { return s.Members[0].Cluster.Routes() == 1 && s.Members[2].Cluster.Routes() == 1 })
	s.Linked(t)
	m.Start(t)
	s.Linked(t)
	answers(t, s.Members[0].Bus, m.Bus, bus.MembersSubject("again"))
}

// TestTheServerDialsNobody: a member dials another one to which it has a route, and later that breaks. The server of the other one,
// which would make such a route again by itself and without end, does not reach the port of the member: only members dial.
func TestTheServerDialsNobody(t *testing.T) {
	t.Parallel()
	s, logs := bustest.NewSystem(t, 2), &lines{}
	for _, m := range s.Members {
		m.Change = func(o *broker.Options) { o.Log = slog.New(slog.NewTextHandler(logs, nil)) }
	}
	s.Start(t)
	s.Linked(t)
	for n := range 6 { // whoever has dialled the route, it is one of them that dials again
		broker.CutRoutes(s.Members[0].Cluster)
		<-time.After(300 * time.Millisecond) // nothing says that the server dials nobody
		s.Linked(t)
		broker.DialRoute(t.Context(), s.Members[n%2].Cluster, s.Peers[1-n%2])
	}
	for _, bad := range []string{"only configured members are dialled", "Error trying to connect to route"} {
		if n := strings.Count(logs.String(), bad); n > 0 {
			t.Errorf("the log has %d times %q", n, bad)
		}
	}
}

// TestARemovedMemberIsCut: the members that read the list cut it within a second, both sides
// log that, and it cannot connect again.
func TestARemovedMemberIsCut(t *testing.T) {
	t.Parallel()
	logs := &lines{}
	s := bustest.NewSystem(t, 3)
	// Its own list does not name it as removed, as with a stolen key.
	stolen := s.Members[2]
	stolen.Change = func(o *broker.Options) {
		o.Cluster.Rule.Removed = nil
		o.Log = slog.New(slog.NewTextHandler(logs, nil))
	}
	s.Start(t)
	s.Linked(t)
	begun := time.Now()
	s.Remove(stolen.Key.Public())
	bustest.Until(t, "it is cut", func() bool {
		return s.Members[0].Cluster.Routes() == 1 && s.Members[1].Cluster.Routes() == 1 && stolen.Cluster.Routes() == 0
	})
	if took := time.Since(begun); took > 2*time.Second { // one of these seconds is for a busy machine
		t.Errorf("it was cut after %s", took)
	}
	bustest.Until(t, "it says why it has no routes", func() bool { return strings.Contains(logs.String(), "it refuses this member") })
	if n := len(s.Members[0].Cluster.Members()); n != 1 {
		t.Errorf("%d members are left, want 1", n)
	}
}

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// outsider is a peer that is not a member, with what it presents at the port of routes.
type outsider struct {
	name string
	conf *tls.Config // nil speaks no TLS
	want string      // in the log of the member
}

func outsiders(t *testing.T, s *bustest.System) []outsider {
	t.Helper()
	key := bustest.Key(t)
	sign := func(signer, key *pki.PrivateKey) []byte {
		signature, err := signer.SignPublic(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		return signature
	}
	shows := func(id, name string, key *pki.PrivateKey, signature []byte) *tls.Config {
		certificate, err := member.NewCard(id, name, "1.0").Certificate(key, signature)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true}
	}
	minion, err := key.Certificate("web1")
	if err != nil {
		t.Fatal(err)
	}
	gone := bustest.Key(t)
	s.Remove(gone.Public())
	return []outsider{
		{"a minion's key", &tls.Config{Certificates: []tls.Certificate{minion}, InsecureSkipVerify: true}, "that of a minion"},
		{"a key that nobody has signed", shows(s.ID, "m9", key, []byte("x")), "a signature that is not by"},
		{"another signing key", shows(s.ID, "m9", key, sign(bustest.Key(t), key)), "a signature that is not by"},
		{"another cluster", shows("c2", "m9", key, sign(s.Signer, key)), "belongs to"},
		{"a removed key", shows(s.ID, "m9", gone, sign(s.Signer, gone)), "in the list of removed members"},
		{"this member's own key", shows(s.ID, "m9", s.Members[0].Key, sign(s.Signer, s.Members[0].Key)), "it has the key of this member"},
		{"this member's name", shows(s.ID, "m1", key, sign(s.Signer, key)), "it says that its name is"},
		{"no certificate", &tls.Config{InsecureSkipVerify: true}, "didn't provide a certificate"},
		{"plain text", nil, "first record does not look like a TLS handshake"},
	}
}

// TestUnknownKeysGetNoRoute: a peer that is not a member gets nothing but the end of the
// connection and no route, whatever it presents, and the member's log says why.
func TestUnknownKeysGetNoRoute(t *testing.T) {
	t.Parallel()
	for _, who := range outsiders(t, bustest.NewSystem(t, 2)) {
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			s := bustest.NewSystem(t, 2)
			logs := &lines{}
			m := s.Members[0]
			m.Change = func(o *broker.Options) { o.Log = slog.New(slog.NewTextHandler(logs, nil)) }
			m.Start(t)
			for _, same := range outsiders(t, s) {
				if same.name == who.name {
					who = same
				}
			}
			if heard := greet(t, m.Cluster.Addr(), who.conf); len(heard) > 0 {
				t.Errorf("it heard %q", heard)
			}
			bustest.Until(t, "the log says: "+who.want, func() bool {
				return strings.Contains(strings.ReplaceAll(logs.String(), `\\`, ""), who.want) || strings.Contains(logs.String(), who.want)
			})
			if n := len(m.Cluster.Members()); n+m.Cluster.Routes() > 0 {
				t.Errorf("there are %d members and %d routes", n, m.Cluster.Routes())
			}
		})
	}
}

// TestACertificateAloneIsNoMember: each member shows its certificate to whoever connects. Somebody who
// presents it elsewhere, without the key, is refused and never counts as a route of that member, and so
// displaces none.
func TestACertificateAloneIsNoMember(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 2)
	victim, owner := s.Members[0], s.Members[1]
	conf := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{{
		Certificate: [][]byte{shownBy(t, owner.Cluster.Addr())}, PrivateKey: borrowed{bustest.Key(t), owner.Key.Public()},
	}}}
	const attempts = 4 * broker.MaxRoutes
	before := victim.Cluster.Taken()
	for range attempts {
		if heard := greet(t, victim.Cluster.Addr(), conf); len(heard) > 0 {
			t.Errorf("it heard %q", heard)
		}
	}
	// Both members dialled when they started, so that one of two connections may still end.
	if taken := victim.Cluster.Taken() - before; taken >= attempts {
		t.Errorf("%d connections counted as routes", taken)
	}
	s.Linked(t)
}

// shownBy returns the certificate that the member at this address shows to somebody who has none.
func shownBy(t *testing.T, address string) (raw []byte) {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		raw = s.PeerCertificates[0].Raw
		return nil
	}})
	if err == nil {
		c.Close()
	}
	if raw == nil {
		t.Fatal(err)
	}
	return raw
}

// borrowed pretends to be the key of somebody else, and signs with its own.
type borrowed struct {
	own    *pki.PrivateKey
	public pki.PublicKey
}

// Public implements crypto.Signer.
func (b borrowed) Public() crypto.PublicKey { return b.public.Key() }

// Sign implements crypto.Signer.
func (b borrowed) Sign(_ io.Reader, message []byte, _ crypto.SignerOpts) ([]byte, error) {
	return b.own.Sign(message)
}

// greet sends what a member sends first at the port of routes, and returns what it receives
// until the end.
func greet(t *testing.T, address string, conf *tls.Config) []byte {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // longer means that it hangs
	if conf != nil {
		c = tls.Client(c, conf)
	}
	if _, err := io.WriteString(c, "CONNECT {\"name\":\"m9\",\"server_id\":\"m9\",\"cluster\":\"c1\"}\r\nINFO {\"server_id\":\"m9\",\"server_name\":\"m9\",\"cluster\":\"c1\"}\r\nPING\r\n"); err != nil {
		return nil // it has ended already
	}
	heard, err := io.ReadAll(c)
	if err, ok := errors.AsType[net.Error](err); ok && err.Timeout() {
		t.Error("the connection is not ended")
	}
	return heard
}

// TestAnOutsiderSaysWhyItIsNoMember: a broker with other keys than the cluster also logs the
// reason itself.
func TestAnOutsiderSaysWhyItIsNoMember(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 2)
	for name, change := range map[string]func(*bustest.System){
		"another signing key": func(o *bustest.System) { o.Signer = bustest.Key(t) },
		"another cluster":     func(o *bustest.System) { o.Signer, o.ID = s.Signer, "c2" },
	} {
		t.Run(name, func(t *testing.T) {
			other := bustest.NewSystem(t, 1)
			change(other)
			logs := &lines{}
			m := other.Members[0]
			other.Peers = append(other.Peers, s.Peers...)
			m.Change = func(o *broker.Options) { o.Log = slog.New(slog.NewTextHandler(logs, nil)) }
			m.Start(t)
			bustest.Until(t, "it says why", func() bool { return strings.Count(logs.String(), "another member is not reached") == 2 })
			if name == "another signing key" && strings.Count(logs.String(), "copy master_sign.pem and master_sign.pub") != 2 {
				t.Errorf("the log does not say what to do:\n%s", logs)
			}
			for _, p := range m.Cluster.Peers()[1:] {
				if !errors.Is(p.Err, member.ErrForeign) && !errors.Is(p.Err, member.ErrCluster) {
					t.Errorf("%s: %v", p.Address, p.Err)
				}
			}
			if m.Cluster.Routes()+len(m.Cluster.Members()) > 0 {
				t.Error("it has routes")
			}
		})
	}
}

// TestTwoMembersOfOneNameAreNotAccepted: a copy of a member with a key of its own, but the name of the
// original, gets no route to those that are linked with that one, and both sides say why. It is accepted in the
// place of the original once that has stopped.
func TestTwoMembersOfOneNameAreNotAccepted(t *testing.T) {
	t.Parallel()
	s := bustest.NewSystem(t, 4)
	copied, original, third := s.Members[3], s.Members[1], s.Members[0]
	copied.Name = original.Name
	theirs, own := &lines{}, &lines{}
	third.Change = func(o *broker.Options) { o.Log = slog.New(slog.NewTextHandler(theirs, nil)) }
	copied.Change = func(o *broker.Options) { o.Log = slog.New(slog.NewTextHandler(own, nil)) }
	for _, m := range s.Members[:3] {
		m.Start(t)
	}
	s.Linked(t)
	copied.Start(t)
	bustest.Until(t, "the others say why", func() bool {
		return strings.Contains(theirs.String(), member.ErrTwin.Error()) && strings.Contains(theirs.String(), copied.Key.Public().SHA256()) && strings.Contains(theirs.String(), original.Key.Public().SHA256())
	})
	bustest.Until(t, "it says that it is refused", func() bool {
		return strings.Contains(own.String(), "it refuses this member")
	})
	for _, m := range third.Cluster.Members() {
		if m.Key == copied.Key.Public() {
			t.Error("two members have one name")
		}
	}
	if !slices.ContainsFunc(third.Cluster.Members(), func(m member.Member) bool { return m.Key == original.Key.Public() }) {
		t.Error("the copy has displaced the original")
	}
	original.Stop()
	bustest.Until(t, "it takes the place", func() bool {
		return slices.ContainsFunc(third.Cluster.Members(), func(m member.Member) bool { return m.Key == copied.Key.Public() })
	})
}

// clientRefused is what the server logs of a client that does not begin TLS, with its address.
var clientRefused = regexp.MustCompile(`127\.0\.0\.1:\d+ - cid:\d+ - TLS handshake error`)

// TestAPortOfClientsIsNoMember: if the port for minions is configured as that of a member, it
// is recognised and left alone, instead of being dialled again and again. The master that has the port logs from
// where it was dialled.
func TestAPortOfClientsIsNoMember(t *testing.T) {
	t.Parallel()
	clients, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer clients.Close()
	said := &lines{}
	target := bustest.StartLogging(t, slog.New(slog.NewTextHandler(said, nil)))
	var mu sync.Mutex
	tries := 0
	go func() { // forwards connections and counts them
		for {
			c, err := clients.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			tries++
			mu.Unlock()
			go func() {
				defer c.Close()
				to, err := net.Dial("tcp", target.Addr().String())
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, c); to.Close() }()
				_, _ = io.Copy(c, to)
			}()
		}
	}()
	s := bustest.NewSystem(t, 1)
	s.Peers = append(s.Peers, clients.Addr().String())
	m := s.Members[0]
	m.Start(t)
	bustest.Until(t, "it is told apart", func() bool {
		p := m.Cluster.Peers()[1]
		return p.Err != nil && strings.Contains(p.Err.Error(), "a port for minions and clients")
	})
	if hint := salt.Hint(m.Cluster.Peers()[1].Err); !strings.Contains(hint, "cluster_port") {
		t.Errorf("the hint is %q", hint)
	}
	begun := time.Now()
	bustest.Until(t, "it is tried again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return tries >= 3
	})
	bustest.Until(t, "the other side logs it", func() bool { return clientRefused.MatchString(said.String()) })
	if took := time.Since(begun); took < 2*time.Second { // one second and two, less the time until here
		t.Errorf("it was tried three times within %s", took)
	}
}

// TestANameThatWasSeenProvesNothing: whoever is at the address of another member sees the name that this one
// asks for, and its certificate. With both they do not make it take that address for its own.
func TestANameThatWasSeenProvesNothing(t *testing.T) {
	t.Parallel()
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	s := bustest.NewSystem(t, 1)
	s.Peers = append(s.Peers, peer.Addr().String())
	m := s.Members[0]
	m.Start(t)
	certificate := shownBy(t, m.Cluster.Addr())
	// show has the peer show a certificate, and returns how the handshake has ended.
	show := func(c net.Conn) error {
		return tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			// The member gets the name back, from somewhere else.
			back, err := tls.Dial("tcp", m.Cluster.Addr(), &tls.Config{InsecureSkipVerify: true, ServerName: h.ServerName})
			if err == nil {
				back.Close()
			}
			return nil, nil
		}, Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: borrowed{bustest.Key(t), m.Key.Public()}}}}).Handshake()
	}
	for n := range 4 { // it is dialled again each time
		_ = peer.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
		c, err := peer.Accept()
		if err != nil {
			t.Fatalf("after %d connections it is not dialled again: %v", n, err)
		}
		if err := show(c); err == nil {
			t.Error("the handshake of somebody without the key is finished")
		}
		c.Close()
	}
	if m.Cluster.Peers()[1].Self {
		t.Error("it takes the address for its own")
	}
	if n := m.Cluster.Routes() + len(m.Cluster.Members()); n > 0 {
		t.Errorf("it has %d routes and members", n)
	}
}

// TestAMemberMeetsItselfThroughAnotherAddress: one of the addresses is its own behind something that
// translates addresses.
func TestAMemberMeetsItselfThroughAnotherAddress(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := bustest.NewSystem(t, 1)
	s.Peers = append(s.Peers, other.Addr().String())
	m, logs := s.Members[0], &lines{}
	m.Change = func(o *broker.Options) { o.Log = slog.New(slog.NewTextHandler(logs, nil)) }
	go func() { // forwards connections
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				to, err := net.Dial("tcp", s.Peers[0])
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, c); to.Close() }()
				_, _ = io.Copy(c, to)
			}()
		}
	}()
	m.Start(t)
	bustest.Until(t, "it knows itself", func() bool {
		p := m.Cluster.Peers()[1]
		return p.Self && p.Err == nil && strings.Contains(logs.String(), "this member reaches itself")
	})
	if n := m.Cluster.Routes() + len(m.Cluster.Members()); n > 0 {
		t.Errorf("it has %d routes and members", n)
	}
	if log := logs.String(); strings.Contains(log, "connection refused") {
		t.Errorf("it says %s", log)
	}
}

// TestAMemberComesInThroughAFlood: connections to the port of routes that send nothing are
// limited, and the other members can still connect.
func TestAMemberComesInThroughAFlood(t *testing.T) {
	t.Parallel()
	s := bustest.NewSystem(t, 3)
	s.Members[0].Start(t)
	if !s.Members[0].Cluster.SharesTurns() {
		t.Error("floods at both ports leave no processor")
	}
	var open []net.Conn
	for range 200 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 10 * time.Second}
		c, err := d.Dial("tcp", s.Peers[0])
		if err != nil {
			continue // it was closed before the handshake
		}
		defer c.Close()
		open = append(open, c)
	}
	s.Members[1].Start(t)
	s.Members[2].Start(t)
	s.Linked(t)
	ended := make(chan bool, len(open))
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		go func() {
			_, err := c.Read(make([]byte, 1))
			var timeout net.Error
			ended <- !errors.As(err, &timeout) || !timeout.Timeout()
		}()
	}
	stay := 0
	for range open {
		if !deadline.Receive(t, ended, "ended") {
			stay++
		}
	}
	if stay > 32 {
		t.Errorf("%d silent connections of one host stay, want 32 at most", stay)
	}
}

// TestNoClientReachesAnotherMember: each role tries each subject on one member while the daemon
// of another member listens to all subjects that clients may use, and to all others. Nothing
// arrives, not even what the table allows, since each member answers its own clients.
func TestNoClientReachesAnotherMember(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	here, there := s.Members[0].Bus, s.Members[2].Bus
	heard := make(chan *nats.Msg, 100000)
	for _, subject := range slices.Concat([]string{">", "salt.>", "_INBOX.>", "salt.minion.>", bus.MembersSubject("end")}, bus.RequestSubjects, bus.WindowSubjects, bus.AckSubjects) {
		if _, err := there.Conn().ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	answers(t, here, there, bus.MembersSubject("begin"))
	for _, role := range []bus.Role{bus.RoleMinion, bus.RoleCaller, bus.RoleClient, bus.RoleRemote, bus.RoleGuest, bus.RoleUnaccepted, bus.RoleUser} {
		victim := there.As(t, bus.RoleMinion, "victim")
		c := here.As(t, role, "web1.example")
		for _, subject := range probes(c.Self, victim.Self) {
			_ = c.Publish(subject, []byte("evil "+string(role)))
			if sub, err := c.SubscribeSync(subject); err == nil {
				defer sub.Unsubscribe()
			}
		}
		if err := c.Flush(); err != nil {
			t.Fatal(role, err)
		}
		if err := here.Conn().Publish(bus.MembersSubject("end"), []byte("end "+string(role))); err != nil {
			t.Fatal(err)
		}
		for deadline, ended := time.After(time.Minute), false; !ended; {
			select {
			case m := <-heard:
				ended = string(m.Data) == "end "+string(role)
				if string(m.Data) == "evil "+string(role) {
					t.Errorf("%s reached another member on %s", role, m.Subject)
				}
			case <-deadline:
				t.Fatalf("%s: the last message did not come", role)
			}
		}
		victim.Close()
	}
}

// TestWhatIsLocalStaysLocal: other members do not learn of subscriptions to local subjects, so
// a request is answered where it was sent, or not at all.
func TestWhatIsLocalStaysLocal(t *testing.T) {
	t.Parallel()
	s := bustest.NewSystem(t, 2)
	s.Start(t)
	s.Linked(t)
	a, b := s.Members[0].Bus, s.Members[1].Bus
	for _, subject := range []string{"local.question", "local.>"} {
		if _, err := b.Conn().Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte("foreign")) }); err != nil {
			t.Fatal(err)
		}
	}
	answers(t, a, b, bus.MembersSubject("known")) // earlier subscriptions are known by now, too
	if m, err := a.Conn().Request("local.question", nil, time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a local request got %v, %v", m, err)
	}
	if m, err := b.Conn().Request("local.question", nil, 10*time.Second); err != nil || string(m.Data) != "foreign" {
		t.Errorf("where it is local it got %v, %v", m, err)
	}
}
