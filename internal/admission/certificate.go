package admission

import (
	"crypto/tls"
	"net"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/bus"
)

// certificates are the certificates of one key, by the name or address that a peer connects to:
// ordinary programs compare it. It is in the certificate because the peer has sent it, so
// nobody learns a name or an address that they do not know. The key, which is the authority
// that those programs trust, proves that it is the master's.
type certificates struct {
	issue func(others ...string) (tls.Certificate, error)
	usual *tls.Certificate // with bus.ServerName only

	mu sync.Mutex
	of map[string]*tls.Certificate
}

// maxCertificates limits how many are stored: a master has few names, and a peer that makes
// some up costs one signature more than its handshake.
const maxCertificates = 256

func newCertificates(issue func(others ...string) (tls.Certificate, error)) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	usual, err := issue()
	if err != nil {
		return nil, err
	}
	c := &certificates{issue: issue, usual: &usual, of: map[string]*tls.Certificate{}}
	return c.choose, nil
}

// choose returns the certificate for a peer. An impossible name is ignored.
func (c *certificates) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := hello.ServerName
	if name == "" { // TLS sends no addresses as names
		name = addressOf(hello.Conn.LocalAddr())
	}
	if name == "" || name == bus.ServerName || !isHost(name) {
		return c.usual, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.of[name]; have != nil {
		return have, nil
	}
	made, err := c.issue(name)
	if err != nil {
		return c.usual, nil //nolint:nilerr // an invalid name is not the master's
	}
	if len(c.of) >= maxCertificates {
		clear(c.of)
	}
	c.of[name] = &made
	return &made, nil
}

// addressOf returns the address that a peer has connected to.
func addressOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil || net.ParseIP(host) == nil { // a zone is valid on one machine only
		return ""
	}
	return host
}

// isHost reports whether a word can be a host name or an address.
func isHost(name string) bool {
	const most = 253
	letters := strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	return net.ParseIP(name) != nil || len(name) <= most && letters && !strings.HasPrefix(name, ".") && !strings.Contains(name, "..")
}
