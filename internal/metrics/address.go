package metrics

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// Address is where metrics are served.
type Address struct {
	path string // of a Unix socket
	tcp  string
}

// ParseAddress parses HOST:PORT, where an empty host is 127.0.0.1, or unix:PATH. An address that
// other machines can reach needs public, since clients are not authenticated.
func ParseAddress(s string, public bool) (Address, error) {
	if path, isPath := strings.CutPrefix(s, "unix:"); isPath {
		if path == "" {
			return Address{}, fmt.Errorf("%q: there is no path behind unix:", s)
		}
		return Address{path: path}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		return Address{}, salt.WithHint(fmt.Errorf("%q is not an address", s), "for example 127.0.0.1:9456, or unix:/run/salt/metrics.sock")
	}
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return Address{}, salt.WithHint(fmt.Errorf("%q: %q is not an address of this machine", s, host), "write its number, for example 127.0.0.1:"+port)
	}
	if !ip.IsLoopback() && !public {
		return Address{}, salt.WithHint(fmt.Errorf("%q can be reached from other machines, and whoever reaches it may read", s),
			"use 127.0.0.1:"+port+" with a proxy that asks who comes, or set metrics_public: true")
	}
	return Address{tcp: net.JoinHostPort(host, port)}, nil
}

// socketMode allows the user and the group of the daemon to read.
const socketMode = 0o660

// Listen opens the address.
func (a Address) Listen() (net.Listener, error) {
	if a.path != "" {
		return socket.Listen(a.path, socketMode)
	}
	return net.Listen("tcp", a.tcp)
}
