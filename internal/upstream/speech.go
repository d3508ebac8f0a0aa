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

// ProtocolOID marks the certificate extension in which both sides show which protocol
// they speak, so that each knows within the handshake. Who shows none is taken: plain
// NATS clients have none, nor had the first release.
var ProtocolOID = asn1.ObjectIdentifier{2, 25, 1298494721, 2}

// The protocol between master and minion. The newest grows with each change that the
// other side has to know of; the oldest when what is older is no longer understood.
const (
	newestProtocol = 1
	oldestProtocol = 1
)

// Protocol is what one side speaks, and the version of its program. The zero value is
// not known.
type Protocol struct {
	Newest, Oldest int
	Version        string `asn1:"utf8"`
}

// Spoken is the protocol of this program, whose version is given.
func Spoken(version string) Protocol {
	return Protocol{newestProtocol, oldestProtocol, version}
}

// Extension is how a certificate shows it.
func (p Protocol) Extension() (pkix.Extension, error) {
	b, err := asn1.Marshal(p)
	return pkix.Extension{Id: ProtocolOID, Value: b}, err
}

// protocolOf is the zero value for a certificate that does not tell.
func protocolOf(c *x509.Certificate) (p Protocol, err error) {
	for _, e := range c.Extensions {
		if e.Id.Equal(ProtocolOID) {
			if rest, err := asn1.Unmarshal(e.Value, &p); err != nil || len(rest) > 0 {
				return Protocol{}, fmt.Errorf("the certificate tells no readable protocol number")
			}
		}
	}
	return p, nil
}

// String names it, with what was made by somebody else cut and cleaned.
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

// agree says whether two sides have a protocol in common. The error names both, and
// which is to be upgraded.
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

// CheckMinion judges, for a master that speaks p, the certificate of who connects.
func (p Protocol) CheckMinion(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return nil // which is refused elsewhere
	}
	other, err := protocolOf(s.PeerCertificates[0])
	if err != nil {
		return err
	}
	return agree(p, other)
}
