package member

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/pki"
)

// cardOID is the certificate extension with the Card of a member. Certificates for minions do
// not have it, nor have those of minions.
var cardOID = asn1.ObjectIdentifier{2, 25, 1298494721, 3}

// peersOID is the certificate extension with the digest of Card.Peers. Members of earlier versions do not look at it.
var peersOID = asn1.ObjectIdentifier{2, 25, 1298494721, 4}

// The protocol between members. newest is increased with each change that the other side must
// know about; oldest, when older ones are no longer supported. Two consecutive versions must
// have one in common, since members are upgraded one by one.
const (
	newestProtocol = 1
	oldestProtocol = 1
)

// Card is what a member says about itself. A handshake, once it is finished, has proved whose card it
// is, but not that its contents are true: they are only compared and shown.
type Card struct {
	Cluster string // the name of the system, "" for two masters that mirror each other
	Name    string // of the member, within it
	Version string // of its program
	Newest  int    // protocol that it speaks
	Oldest  int
	Peers   string // a digest of the members that its settings name, "" if it does not say that
}

// Naming is the card of a member whose settings name these addresses. Whoever dials sees the card: it has
// a digest of them only.
func (c Card) Naming(peers []string) Card {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(peers)), "\n")))
	c.Peers = string(sum[:])
	return c
}

// wireCard is the form in a certificate.
type wireCard struct {
	Cluster string `asn1:"utf8"`
	Name    string `asn1:"utf8"`
	Version string `asn1:"utf8"`
	Newest  int
	Oldest  int
}

// NewCard is the card of this program as a member.
func NewCard(cluster, name, version string) Card {
	return Card{Cluster: cluster, Name: name, Version: version, Newest: newestProtocol, Oldest: oldestProtocol}
}

// Certificate is what a member presents at both ends of a link: its key, the signature of that
// key, and its card.
func (c Card) Certificate(key *pki.PrivateKey, signature []byte) (tls.Certificate, error) {
	if len(signature) == 0 {
		return tls.Certificate{}, errors.New("the signature of the master's key is missing, and a member needs it")
	}
	card, err := asn1.Marshal(wireCard{c.Cluster, c.Name, c.Version, c.Newest, c.Oldest})
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the certificate of member %q: %w", c.Name, err)
	}
	extensions := []pkix.Extension{{Id: pki.SignatureOID, Value: signature}, {Id: cardOID, Value: card}}
	if c.Peers != "" {
		extensions = append(extensions, pkix.Extension{Id: peersOID, Value: []byte(c.Peers)})
	}
	return key.Certificate(c.Name, extensions...)
}

// cardOf reads the card in a certificate; ok is false if there is none.
func cardOf(cert *x509.Certificate) (c Card, ok bool, err error) {
	for _, e := range cert.Extensions {
		switch {
		case e.Id.Equal(peersOID):
			c.Peers = string(e.Value)
		case e.Id.Equal(cardOID) && !ok:
			var w wireCard
			if rest, err := asn1.Unmarshal(e.Value, &w); err != nil || len(rest) > 0 {
				return Card{}, true, errors.New("what it says of itself cannot be read")
			}
			c.Cluster, c.Name, c.Version, c.Newest, c.Oldest, ok = w.Cluster, w.Name, w.Version, w.Newest, w.Oldest, true
		}
	}
	return c, ok, nil
}

// agree checks that two members have a protocol in common.
func (c Card) agree(other Card) error {
	if other.Newest >= c.Oldest && c.Newest >= other.Oldest {
		return nil
	}
	older := "the other one"
	if c.Newest < other.Oldest {
		older = "this one"
	}
	return fmt.Errorf("the versions do not fit together: this member speaks %s, the other %s; upgrade %s", c.protocol(), other.protocol(), older)
}

func (c Card) protocol() string {
	numbers := strconv.Itoa(c.Newest)
	if c.Oldest != c.Newest {
		numbers = strconv.Itoa(c.Oldest) + " to " + numbers
	}
	return fmt.Sprintf("protocol %s (version %.40q)", numbers, c.Version)
}
