package broker

import (
	"cmp"
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/salt"
)

// trusting returns the options with which a user connects that has no dialer of its own, and by which the log tells of a server whose certificate is
// not one of nats_finger. The client library says nothing of it while another server lets the user in. Of one that is
// not signed by nats_ca nothing is seen: the check of the standard library ends the handshake before.
func trusting(x *External) []nats.Option {
	check := x.tls.VerifyConnection
	if check == nil {
		return []nats.Option{nats.Secure(x.tls)}
	}
	conf, dial := x.tls.Clone(), new(notedDialer)
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		err := check(s)
		if server := dial.server(s); x.distrusted.First(server, err) {
			x.log.Warn("the certificate of a NATS server is not trusted: it is not used", "server", server, "err", err, "hint", salt.Hint(err))
		}
		return err
	}
	return []nats.Option{nats.Secure(conf), nats.SetCustomDialer(dial)}
}

// notedDialer keeps the address that it has dialed last. A connection dials one after the other.
type notedDialer struct{ last atomic.Value }

// Dial implements nats.CustomDialer.
func (d *notedDialer) Dial(network, address string) (net.Conn, error) {
	d.last.Store(address)
	return (&net.Dialer{Timeout: externalTimeout}).Dial(network, address)
}

// server is the name of the server of a handshake, if it has one, or its address, with the port that was dialed.
func (d *notedDialer) server(s tls.ConnectionState) string {
	address, _ := d.last.Load().(string)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return s.ServerName
	}
	return net.JoinHostPort(cmp.Or(s.ServerName, host), port)
}
