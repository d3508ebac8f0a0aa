package admission

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
)

// at is a connection to an address.
type at struct {
	net.Conn
	address string
}

// LocalAddr implements net.Conn.
func (a at) LocalAddr() net.Addr {
	addr, _ := net.ResolveTCPAddr("tcp", a.address)
	return addr
}

// TestCertificateNamesWhatIsConnectedTo: an ordinary program finds the name or the address
// that it has connected to, beside the name that always stands there, and no other.
func TestCertificateNamesWhatIsConnectedTo(t *testing.T) {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	issued := 0
	choose, err := newCertificates(func(others ...string) (tls.Certificate, error) {
		issued++
		return key.NamedCertificate(bus.ServerName, others)
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.Authority()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	get := func(name, address string) *x509.Certificate {
		t.Helper()
		c, err := choose(&tls.ClientHelloInfo{ServerName: name, Conn: at{address: address}})
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf
	}
	for _, test := range []struct {
		name, address string
		good          []string
	}{
		{"salt.example.com", "10.1.2.3:4506", []string{"salt.example.com", bus.ServerName}},
		{"", "10.1.2.3:4506", []string{"10.1.2.3", bus.ServerName}},
		{"", "[2001:db8::1]:4506", []string{"2001:db8::1", bus.ServerName}},
		{bus.ServerName, "10.1.2.3:4506", []string{bus.ServerName}},
		{"a b", "10.1.2.3:4506", []string{bus.ServerName}},
		{"*", "10.1.2.3:4506", []string{bus.ServerName}},
		{"a..b", "10.1.2.3:4506", []string{bus.ServerName}},
		{strings.Repeat("a", 254), "10.1.2.3:4506", []string{bus.ServerName}},
	} {
		c := get(test.name, test.address)
		for _, name := range test.good {
			if _, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
				t.Errorf("%.20q at %s: %v", test.name, test.address, err)
			}
		}
		if n := len(c.DNSNames) + len(c.IPAddresses); n != len(test.good) {
			t.Errorf("%.20q at %s: it names %q and %v", test.name, test.address, c.DNSNames, c.IPAddresses)
		}
	}
	before := issued
	get("salt.example.com", "10.1.2.3:4506")
	if issued != before {
		t.Error("a certificate that is there is made once more")
	}
}

// TestNamesThatAreMadeUpFillNothing: who connects to one name after the other makes the master
// keep so many certificates and no more.
func TestNamesThatAreMadeUpFillNothing(t *testing.T) {
	c := &certificates{issue: func(...string) (tls.Certificate, error) { return tls.Certificate{}, nil }, usual: &tls.Certificate{}, of: map[string]*tls.Certificate{}}
	for i := range 10 * maxCertificates {
		if _, err := c.choose(&tls.ClientHelloInfo{ServerName: fmt.Sprint("n", i)}); err != nil {
			t.Fatal(err)
		}
		if len(c.of) > maxCertificates {
			t.Fatalf("%d are kept", len(c.of))
		}
	}
}
