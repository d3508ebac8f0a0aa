package pki

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// The years in which a certificate is formally valid. They decide nothing with
// us, so they are wide enough for a machine whose clock lost its battery; the
// end is the "no well-defined expiration date" of RFC 5280, 4.1.2.5.
var (
	certificateFrom = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	certificateTo   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// Certificate returns a self-signed certificate for k, for the server and the
// client side of TLS, made anew at each call and never stored. commonName is the
// id that the owner claims, extra extensions are appended.
func (k *PrivateKey) Certificate(commonName string, exts ...pkix.Extension) (tls.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial.Add(serial, big.NewInt(1)), // zero is not allowed
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             certificateFrom,
		NotAfter:              certificateTo,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		ExtraExtensions:       exts,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.signer.Public(), k.signer)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate for %q: %w", commonName, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate for %q: %w", commonName, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k.signer, Leaf: leaf}, nil
}

// PublicFromCertificate returns the key that a peer proved to hold in a TLS
// handshake. Nothing else in the certificate is looked at.
func PublicFromCertificate(c *x509.Certificate) (PublicKey, error) {
	if c == nil {
		return PublicKey{}, errors.New("no certificate")
	}
	return newPublicKey(c.PublicKey)
}
