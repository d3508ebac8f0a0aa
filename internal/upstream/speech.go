package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/brinebus/brine/internal/salt"
)

// ProtocolOID is the certificate extension in which both sides announce their protocol, so that
// each knows it within the handshake. A certificate without it is accepted: plain NATS clients
// have none, nor had the first release.
var ProtocolOID = asn1.ObjectIdentifier{2, 25, 1298494721, 2}

// The protocol between master and minion. newest is increased with each change that the other
// side must know about; oldest, when older ones are no longer supported. With protocol 2 the kind
// of a message is in its headers (package rpc has both forms).
const (
	newestProtocol  = 2
	oldestProtocol  = 1
	headersProtocol = 2
)

// Protocol is the protocol of one side, and the version of its program. The zero value is
// unknown.
type Protocol struct {
	Newest, Oldest int
	Version        string `asn1:"utf8"`
}

// Spoken is the protocol of this program, with the given version.
func Spoken(version string) Protocol {
	return Protocol{newestProtocol, oldestProtocol, version}
}

// framed reports whether two sides speak protocol 1 with each other.
func framed(one, other Protocol) bool {
	return min(one.Newest, other.Newest) < headersProtocol
}

// Extension returns the certificate extension.
func (p Protocol) Extension() (pkix.Extension, error) {
	b, err := asn1.Marshal(p)
	return pkix.Extension{Id: ProtocolOID, Value: b}, err
}

// protocolOf returns the zero value for a certificate without the extension.
func protocolOf(c *x509.Certificate) (p Protocol, err error) {
	for _, e := range c.Extensions {
		if e.Id.Equal(ProtocolOID) {
			if rest, err := asn1.Unmarshal(e.Value, &p); err != nil || len(rest) > 0 {
				return Protocol{}, fmt.Errorf("the certificate has no readable protocol number")
			}
		}
	}
	return p, nil
}

// String returns the protocol for people. Text from the other side is shortened and cleaned.
func (p Protocol) String() string {
	numbers := strconv.Itoa(p.Newest)
	if p.Oldest != p.Newest {
		numbers = strconv.Itoa(p.Oldest) + " to " + numbers
	}
	version := strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, p.Version)
	return fmt.Sprintf("protocol %s (version %.40s)", numbers, version)
}

// agree checks that two sides have a protocol in common. The error names both, and which to
// upgrade.
func agree(master, minion Protocol) error {
	older := ""
	switch {
	case master == Protocol{}, minion == Protocol{}:
		return nil
	case minion.Newest < master.Oldest:
		older = "the minion"
	case master.Newest < minion.Oldest:
		older = "the master"
	default:
		return nil
	}
	return salt.WithHint(fmt.Errorf("the versions do not fit together: the master speaks %s, the minion %s; upgrade %s", master, minion, older),
		"masters are upgraded before minions")
}

// CheckMinion checks, for a master with protocol p, a peer's certificate.
func (p Protocol) CheckMinion(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return nil // refused elsewhere
	}
	other, err := protocolOf(s.PeerCertificates[0])
	if err != nil {
		return err
	}
	return agree(p, other)
}
