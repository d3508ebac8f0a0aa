package admission

import (
	"crypto/tls"
	"net"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/bus"
)

// certificates are those of one key, by the name or address that a peer connects to: ordinary
// programs compare it and cannot be told another one. It is in the certificate because the
// peer has said it, so nobody learns a name or an address that they do not know; that it is
// the master's is shown by the key, which their authority is.
type certificates struct {
	issue func(others ...string) (tls.Certificate, error)
	usual *tls.Certificate // with bus.ServerName only

	mu sync.Mutex
	of map[string]*tls.Certificate
}

// maxCertificates bounds those that are kept: a master has few names, and whoever makes some
// up costs a signature more than their handshake does.
const maxCertificates = 256

func newCertificates(issue func(others ...string) (tls.Certificate, error)) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	usual, err := issue()
	if err != nil {
		return nil, err
	}
	c := &certificates{issue: issue, usual: &usual, of: map[string]*tls.Certificate{}}
	return c.choose, nil
}

// choose returns the certificate for a peer. A name that none can have is left out.
func (c *certificates) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := hello.ServerName
	if name == "" { // an address stands in no greeting
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
		return c.usual, nil //nolint:nilerr // a name that no certificate can have is not the master's
	}
	if len(c.of) >= maxCertificates {
		clear(c.of)
	}
	c.of[name] = &made
	return &made, nil
}

// addressOf is the address that a peer has connected to.
func addressOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil || net.ParseIP(host) == nil { // a zone is of one machine
		return ""
	}
	return host
}

// isHost says whether a word can be the name of a host, or an address.
func isHost(name string) bool {
	const most = 253
	letters := strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	return net.ParseIP(name) != nil || len(name) <= most && letters && !strings.HasPrefix(name, ".") && !strings.Contains(name, "..")
}
