package eauth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/brinebus/brine/internal/salt"
)

// certificates accepts users whose certificate was signed by an authority: the user is its common
// name. A certificate is not a secret, so its key must also sign a statement that we choose;
// without that the login is refused.
type certificates struct {
	authorities *x509.CertPool
	digest      string // of the authorities: if they change, all logins end
}

// newCertificates reads the authorities below external_auth: pki: ca_file.
func newCertificates(o options, under func(string) string) (Backend, error) {
	name, err := o.text("ca_file", "")
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, salt.WithHint(errors.New("ca_file is not set: who signs the certificates of users"), "as in ca_file: /etc/salt/pki/users-ca.pem")
	}
	b, err := os.ReadFile(under(name))
	if err != nil {
		return nil, o.at("ca_file", err)
	}
	c := &certificates{authorities: x509.NewCertPool(), digest: fmt.Sprintf("%x", sha256.Sum256(b))}
	if !c.authorities.AppendCertsFromPEM(b) {
		return nil, o.at("ca_file", fmt.Errorf("%s holds no certificate in PEM", name))
	}
	return c, nil
}

// Verify implements Backend.
func (c *certificates) Verify(_ context.Context, user string, p Proof) (Account, error) {
	block, rest := pem.Decode(p.Certificate)
	if block == nil || block.Type != "CERTIFICATE" {
		return Account{}, fmt.Errorf("%w: there is no certificate in PEM", ErrRefused)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Account{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	between := x509.NewCertPool()
	between.AppendCertsFromPEM(rest)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: c.authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	switch {
	case err != nil:
		return Account{}, fmt.Errorf("%w: %w", ErrRefused, err)
	case leaf.IsCA:
		return Account{}, fmt.Errorf("%w: the certificate is that of an authority", ErrRefused)
	case leaf.Subject.CommonName != user:
		return Account{}, fmt.Errorf("%w: the certificate is of %.60q", ErrRefused, leaf.Subject.CommonName)
	case len(p.Statement) == 0:
		return Account{}, fmt.Errorf("%w: nothing was asked to be signed on this connection", ErrRefused)
	case !signed(leaf.PublicKey, p.Statement, p.Signature):
		return Account{}, fmt.Errorf("%w: the key of the certificate has not signed", ErrRefused)
	}
	return Account{Name: user, Version: c.digest, Until: leaf.NotAfter}, nil
}

// Look implements Backend. There are no accounts besides the rules; a login ends with its
// certificate, if the authorities change, or with its rules.
func (c *certificates) Look(_ context.Context, user string) (Account, error) {
	return Account{Name: user, Version: c.digest}, nil
}

// signed checks a signature: of the statement for Ed25519, of its SHA-256 for RSA and ECDSA.
func signed(key crypto.PublicKey, statement, signature []byte) bool {
	sum := sha256.Sum256(statement)
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, statement, signature)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum[:], signature)
	case *rsa.PublicKey:
		return key.N.BitLen() >= 2048 && rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
	}
	return false
}
