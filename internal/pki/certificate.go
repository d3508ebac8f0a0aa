package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// The years in which a certificate is formally valid. Brine does not check them, so they are
// wide enough for a machine whose clock has lost its battery; the end is the "no well-defined
// expiration date" of RFC 5280, 4.1.2.5.
var (
	certificateFrom = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	certificateTo   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// SignatureOID is the certificate extension with the signature of a master's public key, so
// that a minion has it within the handshake, before anything is sent.
var SignatureOID = asn1.ObjectIdentifier{2, 25, 1298494721, 1}

// SignatureIn returns the signature in a certificate, unchecked, or nil if there is none.
func SignatureIn(c *x509.Certificate) []byte {
	for _, e := range c.Extensions {
		if e.Id.Equal(SignatureOID) {
			return e.Value
		}
	}
	return nil
}

// Certificate returns a self-signed certificate for k, for the server and the client side of
// TLS. It is made at each call and never stored. commonName is the id that the owner claims;
// exts are appended.
func (k *PrivateKey) Certificate(commonName string, exts ...pkix.Extension) (tls.Certificate, error) {
	template, err := leaf(commonName)
	if err != nil {
		return tls.Certificate{}, err
	}
	template.ExtraExtensions = exts
	return k.issue(template, template)
}

// ServerCertificate is Certificate for a server for ordinary programs, which cannot compare
// keys: it is issued by the Authority of the same key, for the host name. It contains the key
// like the other.
func (k *PrivateKey) ServerCertificate(name string, exts ...pkix.Extension) (tls.Certificate, error) {
	return k.NamedCertificate(name, nil, exts...)
}

// NamedCertificate is ServerCertificate with further host names and addresses.
func (k *PrivateKey) NamedCertificate(name string, others []string, exts ...pkix.Extension) (tls.Certificate, error) {
	template, err := leaf(name)
	if err != nil {
		return tls.Certificate{}, err
	}
	template.DNSNames, template.ExtraExtensions = []string{name}, exts
	for _, other := range others {
		if ip := net.ParseIP(other); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, other)
	}
	return k.issue(template, k.authority())
}

// Authority returns, in PEM, the certification authority that a program must trust to verify
// servers with this key: it is the key itself. It may be stored; one that is made at another
// time is equivalent.
func (k *PrivateKey) Authority() ([]byte, error) {
	c, err := k.issue(k.authority(), k.authority())
	if err != nil {
		return nil, err
	}
	return CertificatePEM(c), nil
}

func (k *PrivateKey) authority() *x509.Certificate {
	id := sha256.Sum256([]byte(k.public.der))
	return &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "Brine " + hex.EncodeToString(id[:])[:32]},
		SubjectKeyId:          id[:20],
		NotBefore:             certificateFrom,
		NotAfter:              certificateTo,
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		MaxPathLenZero:        true,
		BasicConstraintsValid: true,
	}
}

// CertificatePEM returns the certificate of c in PEM, for other programs.
func CertificatePEM(c tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: c.Certificate[0]})
}

// leaf is what the certificates of servers and clients have in common.
func leaf(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber:          serial.Add(serial, big.NewInt(2)), // zero is not allowed, one is the authority's
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             certificateFrom,
		NotAfter:              certificateTo,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}, nil
}

// issue signs a certificate for k with k itself.
func (k *PrivateKey) issue(template, parent *x509.Certificate) (tls.Certificate, error) {
	commonName := template.Subject.CommonName
	der, err := x509.CreateCertificate(rand.Reader, template, parent, k.signer.Public(), k.signer)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate for %q: %w", commonName, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate for %q: %w", commonName, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k.signer, Leaf: leaf}, nil
}

// PublicFromCertificate returns the key that a peer has proved to hold in a TLS handshake.
// Nothing else in the certificate matters.
func PublicFromCertificate(c *x509.Certificate) (PublicKey, error) {
	if c == nil {
		return PublicKey{}, errors.New("no certificate")
	}
	return newPublicKey(c.PublicKey)
}
