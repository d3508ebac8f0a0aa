package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
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

// link is the side of a link that owns the journal.
type link struct {
	opts    LinkOptions
	account *server.Account
	secret  string   // of the daemon's own connection
	in      sync.Map // the certificates of those that came in, by the server's number
}

func newLink(o *LinkOptions) *link {
	if o == nil {
		return nil
	}
	return &link{opts: *o, secret: secret()}
}

// listen adds the port of links to the options of the server. TLS comes before anything is
// said, so that whoever is no master of this system learns nothing.
func (l *link) listen(so *server.Options) error {
	host, text, err := net.SplitHostPort(l.opts.Listen)
	if err != nil {
		return fmt.Errorf("the address for links: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("the address for links: %w", err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	so.LeafNode = server.LeafNodeOpts{
		Host: host, Port: port, TLSConfig: l.opts.TLS, TLSHandshakeFirst: true, TLSTimeout: authTimeout.Seconds(), AuthTimeout: authTimeout.Seconds(),
		NoAdvertise: true, Compression: server.CompressionOpts{Mode: server.CompressionOff},
	}
	so.Accounts = append(so.Accounts, server.NewAccount(linkAccount))
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
	state := c.GetTLSConnectionState()
	if state == nil || len(state.PeerCertificates) == 0 {
		return false
	}
	name, err := l.opts.Judge(state.PeerCertificates[0])
	if err == nil {
		err = bus.CheckJournalName(name)
	}
	if err == nil && name == l.opts.Journal {
		err = errors.New("its journal has the name of this one")
	}
	if err != nil {
		remote := c.RemoteAddress().String()
		g.refused(hostOf(remote), "remote", remote, "err", err)
		return false
	}
	l.in.Store(c.GetID(), state.PeerCertificates[0])
	to := bus.Link{Owner: l.opts.Journal, Reader: name}
	c.RegisterUser(&server.User{Username: "mirror at " + name, Account: l.account, Permissions: &server.Permissions{
		Publish: subjects(to.Asks()), Subscribe: subjects(to.Hears()),
	}})
	return true
}

// Links are those of a broker whose journal other masters may mirror.
type Links struct {
	b    *Broker
	opts *server.Options // in which the server writes the port
}

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
func (k *Links) Addr() string {
	return net.JoinHostPort(k.opts.LeafNode.Host, strconv.Itoa(k.opts.LeafNode.Port))
}

// Cut ends the links of those that Judge does not take any more.
func (k *Links) Cut() {
	l := k.b.auth.link
	l.in.Range(func(cid, cert any) bool {
		if k.b.server.GetLeafNode(cid.(uint64)) == nil {
			l.in.Delete(cid) // it has ended
			return true
		}
		if _, err := l.opts.Judge(cert.(*x509.Certificate)); err != nil {
			k.b.opts.Log.Warn("a link was cut", "err", err)
			_ = k.b.server.DisconnectClientByID(cid.(uint64)) // it fails where the link has ended
		}
		return true
	})
}
