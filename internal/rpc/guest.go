package rpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
)

// DefaultPort is the port of a master if an address has none.
const DefaultPort = "4506"

// MasterURL returns the address of a master as tls://HOST:PORT. The scheme and the port may be
// omitted.
func MasterURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "tls://" + text
	}
	u, err := url.Parse(text)
	if at := strings.LastIndex(text, "@"); at >= 0 {
		text = "..." + text[at:] // there may be a password before it, which must not be logged
	}
	if err != nil || u.Scheme != "tls" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%.200q is not an address of a master: want tls://HOST:PORT", text)
	}
	port := u.Port()
	if port == "" {
		port = DefaultPort
	}
	return "tls://" + net.JoinHostPort(u.Hostname(), port), nil
}

// entry is what a guest needs to reconnect as the user of a login.
type entry struct {
	url  string
	conf *tls.Config
	next string // the nonce of that connection
}

// DialGuest connects over the network, without credentials, to the master at url, whose key
// must have this fingerprint. The connection may only send a login, which includes Next; after
// that, call Enter.
func DialGuest(url, fingerprint string) (*Conn, error) {
	var met pki.PublicKey
	conf, key, err := guestConfig(func(p pki.PublicKey) error {
		if met = p; strings.EqualFold(p.SHA256(), fingerprint) {
			return nil
		}
		return ErrServerKey
	})
	if err != nil {
		return nil, err
	}
	self := bus.Identity{Role: bus.RoleGuest, Name: key, Key: key, Nonce: bus.NewNonce()}
	c, err := connectTLS(url, self, "guest", conf)
	switch {
	case !met.IsZero() && !strings.EqualFold(met.SHA256(), fingerprint):
		return nil, fmt.Errorf("connect to the master at %s: %w: its key has the fingerprint %s, and %s was trusted", url, errWrongKey, met, strings.ToLower(fingerprint))
	case err != nil:
		return nil, err
	}
	c.entry = &entry{url, conf, bus.NewNonce()}
	return c, nil
}

// errWrongKey is ErrServerKey for a connection without credentials.
var errWrongKey = wrongKey{}

type wrongKey struct{}

func (wrongKey) Error() string        { return "this is not the master that was logged in to" }
func (wrongKey) Is(target error) bool { return target == ErrServerKey }

// ServerKey returns the key of the master at url. It verifies nothing else.
func ServerKey(url string) (pki.PublicKey, error) {
	var met pki.PublicKey
	seen := errors.New("seen")
	conf, key, err := guestConfig(func(p pki.PublicKey) error { met = p; return seen })
	if err != nil {
		return met, err
	}
	c, err := connectTLS(url, bus.Identity{Role: bus.RoleGuest, Name: key, Key: key, Nonce: bus.NewNonce()}, "guest", conf)
	if err == nil {
		c.Close()
	}
	if met.IsZero() {
		return met, err
	}
	return met, nil
}

// guestConfig uses a key made for this connection, and calls check with the master's key:
// nothing else in its certificate counts.
func guestConfig(check func(pki.PublicKey) error) (conf *tls.Config, key string, err error) {
	own, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		return nil, "", err
	}
	certificate, err := own.Certificate(bus.GuestCertificate)
	if err != nil {
		return nil, "", err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate},
		InsecureSkipVerify: true, // names and authorities do not count: the key is compared
		VerifyConnection: func(s tls.ConnectionState) error {
			p, err := pki.PublicFromCertificate(s.PeerCertificates[0])
			if err != nil {
				return err
			}
			return check(p)
		},
	}, bus.KeyToken(own.Public().Key()), nil
}

// Next is the nonce for the login of a guest, "" on other connections.
func (c *Conn) Next() string {
	if c.entry == nil {
		return ""
	}
	return c.entry.next
}

// Enter connects as the user of this guest's successful login, and closes the guest's
// connection. Other connections are returned unchanged.
func (c *Conn) Enter(backend, user string) (*Conn, error) {
	if c.entry == nil {
		return c, nil
	}
	self := bus.Identity{Role: bus.RoleRemote, Name: bus.LoginName(backend, user), Key: c.self.Key, Nonce: c.entry.next}
	in, err := connectTLS(c.entry.url, self, "remote", c.entry.conf)
	c.Close()
	return in, err
}

// connectTLS connects over the network to the master at url, as self.
func connectTLS(url string, self bus.Identity, name string, conf *tls.Config) (*Conn, error) {
	nc, err := nats.Connect(url, nats.Secure(conf), nats.UserInfo(self.Nonce, ""), nats.Name(name), nats.CustomInboxPrefix(self.Inbox()),
		nats.NoReconnect(), nats.Timeout(dialTime), nats.IgnoreDiscoveredServers(), nats.ErrorHandler(quiet),
		nats.NoCallbacksAfterClientClose(), nats.SyncQueueLen(QueueLen))
	if err != nil {
		return nil, fmt.Errorf("connect to the master at %s: %w", url, dialTLSError(err))
	}
	c := NewConn(nc, self)
	c.AsksOften()
	c.HearComplaints(func(error) {})
	return c, nil
}
