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
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/salt"
)

// linkAccount is the account of links, which contains only other masters and the daemon. The
// messages of the journal are exported to it from the clients' account, on subjects that no
// client may publish or subscribe to. In the other direction only the position of a reader is
// sent.
const linkAccount = "LINK"

// LinkOptions are for a broker whose journal other masters may mirror.
type LinkOptions struct {
	Listen  string      // host:port
	TLS     *tls.Config // mutual: it checks who is a master of this system
	Journal string      // the name of the own journal
	// Judge returns the journal's name for the master with this certificate, or refuses it. TLS
	// has checked the same before. The error wraps member.ErrUnread if that is not known at the moment.
	Judge func(*x509.Certificate) (journal string, err error)
}

// Limits of the port of links. There is one other master, which dials again if it was refused;
// everybody else is refused anyway.
const (
	linkConnections = 96
	linkHalfOpen    = 64
	// maxLinks is how many links one master may have: the one in use, and earlier ones whose
	// end was not noticed yet.
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
	n  int                  // links accepted so far

	throttle logging.Throttle
}

// incoming is a link that another master has dialled.
type incoming struct {
	certificate *x509.Certificate
	reader      string // the name of its journal
	arrival     *arrival
	number      int           // in order of arrival
	unread      member.Unread // used by Links.Cut
}

func newLink(o *LinkOptions) *link {
	if o == nil {
		return nil
	}
	return &link{opts: *o, secret: secret(), in: map[uint64]*incoming{}}
}

// options adds links to the options of the server. TLS comes before anything else, so a peer
// that is not a master of this system learns nothing. The server gets no port for links, since
// it would accept every peer. A remote that is never dialled tells it that there are links.
func (l *link) options(so *server.Options) {
	so.LeafNode = server.LeafNodeOpts{
		TLSConfig: l.opts.TLS, TLSHandshakeFirst: true, TLSTimeout: authTimeout.Seconds(), AuthTimeout: authTimeout.Seconds(),
		NoAdvertise: true, Compression: server.CompressionOpts{Mode: server.CompressionOff},
		Remotes: []*server.RemoteLeafOpts{{LocalAccount: linkAccount, Disabled: true}},
	}
	so.Accounts = append(so.Accounts, server.NewAccount(linkAccount))
}

// listen takes the port. Connections wait in the kernel until the broker is ready. Until a peer
// has proven to be a master it is limited as on the port of clients.
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

// bind connects the account of the clients and that of the links, one export each way.
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
	for _, stream := range bus.LinkStreams {
		flow := bus.LinkFlow(stream)
		if err := clients.AddServiceExport(flow, only); err != nil {
			return err
		}
		if err := l.account.AddServiceImport(clients, flow, flow); err != nil {
			return err
		}
	}
	return nil
}

// check decides about a connection to the port of links.
func (l *link) check(c server.ClientAuthentication, g *authenticator) bool {
	from, ok := c.RemoteAddress().(address)
	state := c.GetTLSConnectionState()
	if !ok || state == nil || len(state.PeerCertificates) == 0 {
		return false // it has ended, or did not come through the port of links
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

// judge returns the journal's name for a certificate of a master other than this one.
func (l *link) judge(cert *x509.Certificate) (name string, err error) {
	if name, err = l.opts.Judge(cert); err != nil {
		return "", err
	}
	if err := bus.CheckJournalName(name); err != nil {
		return "", err
	}
	if name == l.opts.Journal {
		return "", errors.New("its journal has the same name as this one")
	}
	return name, nil
}

// enter registers a link. If its master has too many, the oldest of them is ended.
func (l *link) enter(cid uint64, i *incoming) error {
	oldest := l.book(cid, i)
	if !i.arrival.enter(cid) {
		l.left(cid)
		return errors.New("it ended while it was checked")
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

// left is called when a connection has ended.
func (l *link) left(cid uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.in, cid)
}

// all returns the present links.
func (l *link) all() map[uint64]*incoming {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.in)
}

// Links are the links of a broker whose journal other masters may mirror.
type Links struct{ b *Broker }

// Conn returns a new connection of the daemon to the account of links; the caller closes it.
func (k *Links) Conn() (*nats.Conn, error) {
	nc, err := nats.Connect("nats://self", nats.InProcessServer(k.b.server), nats.UserInfo(k.b.auth.link.secret, ""), nats.Name(k.b.opts.Name+" links"),
		nats.SkipHostLookup(), nats.NoReconnect(), nats.CustomInboxPrefix("_INBOX.master"))
	if err != nil {
		return nil, fmt.Errorf("connect to the own links: %w", err)
	}
	return nc, nil
}

// Addr is the listen address for links.
func (k *Links) Addr() string { return k.b.auth.link.acceptor.listener.Addr().String() }

// Cut ends the links that Judge no longer accepts. Those that it cannot judge stay for member.UnreadTime. It is not
// called by several at once.
func (k *Links) Cut() {
	l := k.b.auth.link
	for cid, one := range l.all() {
		_, err := l.opts.Judge(one.certificate)
		switch stays := one.unread.Stays(err); {
		case err == nil:
		case stays:
			l.throttle.Log(k.b.opts.Log, slog.LevelError, "unread", 1, "a link cannot be judged: it stays for some seconds, and no new one is accepted", "err", err)
		default:
			k.b.opts.Log.Warn("a link was cut", "err", err)
			_ = k.b.server.DisconnectClientByID(cid) // fails if the link has ended
		}
	}
}
