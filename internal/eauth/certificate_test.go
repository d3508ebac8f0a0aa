package eauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"
)

// authority signs certificates of users.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "users"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.cert.Raw = a.sign(a.cert, key)
	return a
}

func (a *authority) sign(c *x509.Certificate, key crypto.Signer) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func inPEM(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

// user makes a certificate of a user.
func (a *authority) user(name string, key crypto.Signer, change func(*x509.Certificate)) []byte {
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	if change != nil {
		change(c)
	}
	return inPEM(a.sign(c, key))
}

// prove signs a statement as package client does.
func prove(t *testing.T, key crypto.Signer, statement []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(statement)
	data, opts := sum[:], crypto.SignerOpts(crypto.SHA256)
	if _, ok := key.(ed25519.PrivateKey); ok {
		data, opts = statement, crypto.Hash(0)
	}
	s, err := key.Sign(rand.Reader, data, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	g := newAuthenticator(t, &memory{}, parse(t, load(t, "external_auth: {pki: {ca_file: users, fred: [.*]}}\n", string(inPEM(ca.cert.Raw)))))
	_, fred, _ := ed25519.GenerateKey(rand.Reader)
	_, eve, _ := ed25519.GenerateKey(rand.Reader)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	statement := []byte("what this connection was asked to sign")
	good := ca.user("fred", fred, nil)
	for name, c := range map[string]struct {
		user                   string
		certificate, signature []byte
		statement              []byte
		want                   bool
	}{
		"Ed25519":              {"fred", good, prove(t, fred, statement), statement, true},
		"ECDSA":                {"fred", ca.user("fred", curve, nil), prove(t, curve, statement), statement, true},
		"RSA":                  {"fred", ca.user("fred", old, nil), prove(t, old, statement), statement, true},
		"a certificate alone":  {"fred", good, nil, statement, false},
		"a junk signature":     {"fred", good, []byte("x"), statement, false},
		"another's key":        {"fred", good, prove(t, eve, statement), statement, false},
		"another statement":    {"fred", good, prove(t, fred, []byte("x")), statement, false},
		"none was asked for":   {"fred", good, prove(t, fred, nil), nil, false},
		"under another's name": {"root", good, prove(t, fred, statement), statement, false},
		"of another authority": {"fred", other.user("fred", fred, nil), prove(t, fred, statement), statement, false},
		"expired":              {"fred", ca.user("fred", fred, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), prove(t, fred, statement), statement, false},
		"not yet":              {"fred", ca.user("fred", fred, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), prove(t, fred, statement), statement, false},
		"for servers only":     {"fred", ca.user("fred", fred, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), prove(t, fred, statement), statement, false},
		"the authority's own":  {"users", inPEM(ca.cert.Raw), prove(t, ca.key, statement), statement, false},
		"no certificate":       {"fred", []byte("x"), prove(t, fred, statement), statement, false},
		"a public key":         {"fred", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}), nil, statement, false},
	} {
		t.Run(name, func(t *testing.T) {
			grant, err := g.Login(t.Context(), name, "pki", c.user, Proof{Certificate: c.certificate, Signature: c.signature, Statement: c.statement})
			if (err == nil) != c.want || err != nil && !errors.Is(err, ErrRefused) {
				t.Errorf("%v, %v; want success %t", grant, err, c.want)
			}
		})
	}
	grant, err := g.Login(t.Context(), "0", "pki", "fred", Proof{Certificate: good, Signature: prove(t, fred, statement), Statement: statement})
	if err != nil || grant.Expires.After(time.Now().Add(time.Hour)) {
		t.Errorf("the login: %+v, %v; want it to end with the certificate", grant, err)
	}
	if _, err := g.Login(t.Context(), "0", "pki", "fred", Proof{Secret: string(good)}); !errors.Is(err, ErrRefused) {
		t.Errorf("the certificate as a password: %v, want a refusal", err)
	}
}
