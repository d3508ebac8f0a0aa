package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/salt"
)

// linkAccount is that of links: only other masters and the daemon are in it. Of what is in
// the account of the clients the messages of the journal come over to it, on subjects that
// no client may publish to or hear, and how far a reader has come goes back, and no more.
const linkAccount = "LINK"

// LinkOptions are for a broker whose journal other masters may mirror.
type LinkOptions struct {
	Listen  string      // host:port
	TLS     *tls.Config // of both ends: it judges who is a master of this system
	Journal string      // the name of the own journal
	// Judge names the journal of the master with this certificate, or refuses it. TLS has
	// asked the same before.
	Judge func(*x509.Certificate) (journal string, err error)
}

// Bounds of the port of links. There is one other master, which dials again where it was
// turned away; everybody else can only knock.
const (
	linkConnections = 96
	linkHalfOpen    = 64
	// maxLinks is how many links one master may have: the one in use, and those before it
	// whose end nobody has noticed yet.
	maxLinks = 4
)

// link is the side of a link that owns the journal.
type link struct {
	opts     LinkOptions
	account  *server.Account
	secret   string // of the daemon's own connection
	acceptor *acceptor

	mu sync.Mutex
	in map[uint64]*incoming // those that came in, by the server's number
	n  int                  // how many have come in so far
}

// incoming is a link that another master has made.
type incoming struct {
	certificate *x509.Certificate
	reader      string // the name of its journal
	arrival     *arrival
	number      int // in the order in which they came
}

func newLink(o *LinkOptions) *link {
	if o == nil {
		return nil
	}
	return &link{opts: *o, secret: secret(), in: map[uint64]*incoming{}}
}

// options adds links to the options of the server. TLS comes before anything is said, so that
// whoever is no master of this system learns nothing. The server has no port for them, since
// it would take whoever comes; that it has links all the same it learns by one that is never
// made.
func (l *link) options(so *server.Options) {
	so.LeafNode = server.LeafNodeOpts{
		TLSConfig: l.opts.TLS, TLSHandshakeFirst: true, TLSTimeout: authTimeout.Seconds(), AuthTimeout: authTimeout.Seconds(),
		NoAdvertise: true, Compression: server.CompressionOpts{Mode: server.CompressionOff},
		Remotes: []*server.RemoteLeafOpts{{LocalAccount: linkAccount, Disabled: true}},
	}
	so.Accounts = append(so.Accounts, server.NewAccount(linkAccount))
}

// listen takes the port. Who connects waits in the kernel until the broker is ready, and is
// bounded until it has proven to be a master, as those are who come to the port of clients.
func (l *link) listen(s *server.Server, log *slog.Logger) error {
	c := net.ListenConfig{KeepAlive: -1}
	listener, err := c.Listen(context.Background(), "tcp", l.opts.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = salt.WithHint(err, "another program has the port: stop it, or set journal_mirror_port")
	}
	if err != nil {
		return fmt.Errorf("listen for the other master: %w", err)
	}
	l.acceptor = newAcceptor(listener, descriptors{connections: linkConnections, halfOpen: linkHalfOpen, unaccepted: 1}, nil, log.With("port", "links"))
	l.acceptor.serve = func(a *arrival) { serveLink(s, a, nil, nil, nil) }
	l.acceptor.leave = l.left
	return nil
}

// bind opens the two ways between the account of the clients and that of the links.
func (l *link) bind(s *server.Server, clients *server.Account) (err error) {
	if l.account, err = s.LookupAccount(linkAccount); err != nil {
		return err
	}
	only := []*server.Account{l.account}
	if err := clients.AddStreamExport(bus.LinkDelivers, only); err != nil {
		return err
	}
	if err := l.account.AddStreamImport(clients, bus.LinkDelivers, ""); err != nil {
		return err
	}
	if err := clients.AddServiceExport(bus.LinkFlow, only); err != nil {
		return err
	}
	return l.account.AddServiceImport(clients, bus.LinkFlow, bus.LinkFlow)
}

// check says who comes in over the port of links.
func (l *link) check(c server.ClientAuthentication, g *authenticator) bool {
	from, ok := c.RemoteAddress().(address)
	state := c.GetTLSConnectionState()
	if !ok || state == nil || len(state.PeerCertificates) == 0 {
		return false // it is gone, or has not come in by the port of links
	}
	cert := state.PeerCertificates[0]
	name, err := l.judge(cert)
	if err == nil {
		err = l.enter(c.GetID(), &incoming{certificate: cert, reader: name, arrival: from.arrival})
	}
	if err != nil {
		g.refused(hostOf(from.String()), "remote", from.String(), "err", err)
		return false
	}
	if !l.acceptor.letIn(from.arrival, false) {
		return false
	}
	to := bus.Link{Owner: l.opts.Journal, Reader: name}
	c.RegisterUser(&server.User{Username: "mirror at " + name, Account: l.account, Permissions: &server.Permissions{
		Publish: subjects(to.Asks()), Subscribe: subjects(to.Hears()),
	}})
	return true
}

// judge names the journal of a master that is one, and another one than this.
func (l *link) judge(cert *x509.Certificate) (name string, err error) {
	if name, err = l.opts.Judge(cert); err != nil {
		return "", err
	}
	if err := bus.CheckJournalName(name); err != nil {
		return "", err
	}
	if name == l.opts.Journal {
		return "", errors.New("its journal has the name of this one")
	}
	return name, nil
}

// enter books a link. Where its master has too many the oldest of them ends.
func (l *link) enter(cid uint64, i *incoming) error {
	oldest := l.book(cid, i)
	if !i.arrival.enter(cid) {
		l.left(cid)
		return errors.New("it ended while it was judged")
	}
	if oldest != nil {
		oldest.arrival.Close()
	}
	return nil
}

func (l *link) book(cid uint64, i *incoming) (tooMany *incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	i.number = l.n
	l.in[cid] = i
	count, oldest := 0, i
	for _, one := range l.in {
		if one.reader != i.reader {
			continue
		}
		count++
		if one.number < oldest.number {
			oldest = one
		}
	}
	if count <= maxLinks {
		return nil
	}
	return oldest
}

// left is told of the end of each.
func (l *link) left(cid uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.in, cid)
}

// all are those of now.
func (l *link) all() map[uint64]*incoming {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.in)
}

// Links are those of a broker whose journal other masters may mirror.
type Links struct{ b *Broker }

// Conn is a new connection of the daemon among the links; its caller closes it.
func (k *Links) Conn() (*nats.Conn, error) {
	nc, err := nats.Connect("nats://self", nats.InProcessServer(k.b.server), nats.UserInfo(k.b.auth.link.secret, ""), nats.Name(k.b.opts.Name+" links"),
		nats.SkipHostLookup(), nats.NoReconnect(), nats.CustomInboxPrefix("_INBOX.master"))
	if err != nil {
		return nil, fmt.Errorf("connect to the own links: %w", err)
	}
	return nc, nil
}

// Addr is where links come in.
func (k *Links) Addr() string { return k.b.auth.link.acceptor.listener.Addr().String() }

// Cut ends the links of those that Judge does not take any more.
func (k *Links) Cut() {
	l := k.b.auth.link
	for cid, one := range l.all() {
		if _, err := l.opts.Judge(one.certificate); err != nil {
			k.b.opts.Log.Warn("a link was cut", "err", err)
			_ = k.b.server.DisconnectClientByID(cid) // it fails where the link has ended
		}
	}
}
