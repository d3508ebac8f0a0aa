// Package bustest starts a real broker for tests: TLS on a random loopback port,
// keys made on the spot, a local socket, everything closed at the end of the
// test. It connects to it as each role, and as whoever a test makes up.
//
// It is not a fake: what it starts is what the daemons run. It only takes the place
// of the master's decision about keys.
package bustest

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/deadline"
)

// Bus is a running broker with a server of requests.
type Bus struct {
	*broker.Broker
	Server *rpc.Server     // register handlers, then Server.Start
	Key    *pki.PrivateKey // the master's
	Socket string          // of local programs
	Log    *slog.Logger
	Gone   chan bus.Identity // every connection that ended, as far as there is room

	mu       sync.Mutex
	accepted map[salt.MinionID]pki.PublicKey
	remote   map[string]string // names of remote users, by their keys
}

// Endpoints are those of a master, and some for tests of the bus itself, which are the
// sender's own: Probe names their handlers.
var Endpoints = func() bus.Endpoints {
	list := slices.Clone(bus.MasterEndpoints)
	for _, op := range []string{"count", "echo", "flood", "last", "long", "never", "ok", "panic", "refused", "wait"} {
		for _, role := range []bus.Role{bus.RoleMinion, bus.RoleUser, bus.RoleClient} {
			list = append(list, bus.Endpoint{Op: op, Roles: []bus.Role{role}, Check: bus.Own, Body: 64 << 20, Handler: Probe(role, op), Why: "a test of the bus"})
		}
	}
	return list
}()

// Probe is the name of the handler of an operation for tests.
func Probe(role bus.Role, op string) string { return string(role) + "." + op }

// Start starts a bus without a store. It is closed by the end of the test, which
// then fails if something of it is still running.
func Start(t testing.TB) *Bus {
	t.Helper()
	return start(t, "", Log(t))
}

// StartLogging is Start with a log of its own, for a test about what is logged.
func StartLogging(t testing.TB, log *slog.Logger) *Bus {
	t.Helper()
	return start(t, "", log)
}

// StartStore is Start with a JetStream store, as the master has it.
func StartStore(t testing.TB) *Bus {
	t.Helper()
	return start(t, t.TempDir(), Log(t))
}

func start(t testing.TB, store string, log *slog.Logger) *Bus {
	t.Helper()
	b, err := open(broker.Options{Name: "test", StoreDir: store, Log: log}, Key(t), filepath.Join(t.TempDir(), "d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	deadline.Guard(t, b.Stop, "the bus")
	return b
}

// open starts a bus; the options need no more than where its store is. With an Admit of its own, keys
// are judged by that.
func open(o broker.Options, key *pki.PrivateKey, path string) (*Bus, error) {
	b := &Bus{
		Key: key, Log: o.Log, Socket: path, Gone: make(chan bus.Identity, 1000),
		accepted: map[salt.MinionID]pki.PublicKey{}, remote: map[string]string{},
	}
	speaks, err := upstream.Spoken("test").Extension()
	if err != nil {
		return nil, err
	}
	certificate, err := b.Key.Certificate("salt-master", speaks)
	if err != nil {
		return nil, err
	}
	o.Listen, o.TLS = "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}}
	o.Gone, o.Endpoints = b.gone, Endpoints
	if o.Admit == nil {
		o.Admit = b.admit
	}
	if b.Broker, err = broker.Start(o); err != nil {
		return nil, err
	}
	b.Server = rpc.NewServer(b.Conn(), b.Owner, Endpoints, b.Log)
	b.Server.Unread = broker.Unread(b.Broker)
	if err := b.ServeLocal(b.Socket); err != nil {
		b.Stop()
		return nil, err
	}
	return b, nil
}

// Stop ends the bus, before the end of the test. It may be called twice.
func (b *Bus) Stop() {
	b.Server.Stop()
	b.Broker.Stop()
}

// Log returns a logger that writes to the test's log.
func Log(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// Key makes a key.
func Key(t testing.TB) *pki.PrivateKey {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Accept makes key the accepted key of id; every other key is unaccepted.
func (b *Bus) Accept(id salt.MinionID, key *pki.PrivateKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted[id] = key.Public()
}

// admit judges a peer as the master does: the kernel's word, or the key.
func (b *Bus) admit(p broker.Peer) bus.Identity {
	if p.TLS == nil {
		return bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(int(p.Local.UID))}
	}
	leaf := p.TLS.PeerCertificates[0]
	if leaf.Subject.CommonName == bus.GuestCertificate {
		return b.admitGuest(p)
	}
	name, isClient := strings.CutPrefix(leaf.Subject.CommonName, salt.ClientPrefix)
	id, err := salt.ParseMinionID(name)
	if err != nil {
		return bus.Identity{}
	}
	key, err := pki.PublicFromCertificate(leaf)
	if err != nil {
		return bus.Identity{}
	}
	i := bus.Identity{Role: bus.RoleUnaccepted, Name: string(id), Key: bus.KeyToken(key.Key())}
	b.mu.Lock()
	defer b.mu.Unlock()
	if isClient {
		if b.accepted[salt.MinionID(leaf.Subject.CommonName)].Equal(key) {
			return bus.Identity{Role: bus.RoleClient, Name: name, Key: i.Key}
		}
		return bus.Identity{}
	}
	if b.accepted[id].Equal(key) {
		i.Role = bus.RoleMinion
		if p.Caller {
			i.Role = bus.RoleCaller
		}
	}
	return i
}

// admitGuest takes whoever shows an announced name for a remote user.
func (b *Bus) admitGuest(p broker.Peer) bus.Identity {
	key, err := pki.PublicFromCertificate(p.TLS.PeerCertificates[0])
	if err != nil {
		return bus.Identity{}
	}
	i := bus.Identity{Role: bus.RoleGuest, Name: p.Host, Key: bus.KeyToken(key.Key())}
	b.mu.Lock()
	defer b.mu.Unlock()
	if name, ok := b.remote[i.Key]; ok {
		i.Role, i.Name = bus.RoleRemote, name
	}
	return i
}

func (b *Bus) gone(i bus.Identity) {
	b.Server.Gone(i.Inbox())
	select {
	case b.Gone <- i:
	default:
	}
}

// Claim is what a client shows and says of itself when it connects over TLS.
type Claim struct {
	ID    string          // in the certificate, checked by nobody here
	Key   *pki.PrivateKey // nil shows no certificate
	Nonce string          // "" is a fresh one
	Name  string          // of the program; salt-call asks for less
	TLS   uint16          // the highest version; 0 is what Go offers
	Pass  string
}

// Client is a connection with what the test claimed for it.
type Client struct {
	*nats.Conn
	Self       bus.Identity
	Violations chan error // what the server complained of, after the connect
}

// Dial connects as c, without any check of ours.
func (b *Bus) Dial(c Claim, more ...nats.Option) (*Client, error) {
	if c.Nonce == "" {
		c.Nonce = bus.NewNonce()
	}
	conf := &tls.Config{InsecureSkipVerify: true, MaxVersion: c.TLS} // tests look at the server's side
	self := bus.Identity{Role: bus.RoleMinion, Name: c.ID, Nonce: c.Nonce}
	if c.Key != nil {
		certificate, err := c.Key.Certificate(c.ID)
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{certificate}
		self.Key = bus.KeyToken(c.Key.Public().Key())
	}
	options := append([]nats.Option{
		nats.Secure(conf), nats.UserInfo(c.Nonce, c.Pass), nats.Name(c.Name), nats.CustomInboxPrefix(self.Inbox()),
	}, more...)
	return dial("nats://"+b.Addr().String(), self, options)
}

func dial(url string, self bus.Identity, options []nats.Option) (*Client, error) {
	client := &Client{Self: self, Violations: make(chan error, 4096)}
	options = append([]nats.Option{
		nats.NoReconnect(), nats.Timeout(10 * time.Second), nats.SkipHostLookup(), nats.IgnoreDiscoveredServers(),
		nats.SkipSubjectValidation(), // it is the server's that is tested
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case client.Violations <- err:
			default:
			}
		}),
	}, options...)
	var err error
	client.Conn, err = nats.Connect(url, options...)
	return client, err
}

// As connects in a role with what it needs: a minion or caller with an accepted
// key, an unaccepted key, a user through the local socket. id is the
// minion's and means nothing for a user. The master's role is the daemon's own
// connection and not to be had.
func (b *Bus) As(t testing.TB, role bus.Role, id salt.MinionID) *Client {
	t.Helper()
	c, err := b.as(t, role, id)
	if err != nil {
		t.Fatalf("connect as %s: %v", role, err)
	}
	c.Self.Role, c.Self.Name = role, strings.TrimPrefix(c.Self.Name, salt.ClientPrefix)
	t.Cleanup(c.Close)
	return c
}

func (b *Bus) as(t testing.TB, role bus.Role, id salt.MinionID) (*Client, error) {
	t.Helper()
	claim := Claim{ID: string(id), Key: Key(t)}
	switch role {
	case bus.RoleUser:
		return b.User()
	case bus.RoleMinion:
		b.Accept(id, claim.Key)
		return b.Dial(claim)
	case bus.RoleCaller:
		b.Accept(id, claim.Key)
		claim.Name = "salt-call"
		return b.Dial(claim)
	case bus.RoleClient:
		claim.ID = salt.ClientPrefix + string(id)
		b.Accept(salt.MinionID(claim.ID), claim.Key)
		return b.Dial(claim)
	case bus.RoleUnaccepted:
		return b.Dial(claim)
	case bus.RoleGuest, bus.RoleRemote:
		claim.ID = bus.GuestCertificate
		if role == bus.RoleRemote {
			b.mu.Lock()
			b.remote[bus.KeyToken(claim.Key.Public().Key())] = string(id)
			b.mu.Unlock()
		}
		c, err := b.Dial(claim)
		if err == nil {
			c.Self.Name = string(id)
		}
		return c, err
	}
	return nil, errors.New("nobody connects in this role")
}

// Local is a nats.CustomDialer that goes through the local socket.
type Local struct{ Path string }

// Dial implements nats.CustomDialer.
func (l Local) Dial(string, string) (net.Conn, error) { return socket.Dial(l.Path) }

// SkipTLSHandshake keeps TLS away from the socket.
func (Local) SkipTLSHandshake() bool { return true }

// User connects through the local socket as the user of this process.
func (b *Bus) User(more ...nats.Option) (*Client, error) {
	self := bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(os.Geteuid()), Nonce: bus.NewNonce()}
	options := append([]nats.Option{
		nats.SetCustomDialer(Local{b.Socket}), nats.UserInfo(self.Nonce, ""), nats.CustomInboxPrefix(self.Inbox()),
	}, more...)
	return dial("nats://daemon", self, options)
}
