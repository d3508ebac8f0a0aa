package pki

import (
	"crypto/x509"
	"testing"
)

// TestAuthorityKnowsItsServers: what a program has kept of a key fits the
// certificates that are made of it later, and those of no other key or name.
func TestAuthorityKnowsItsServers(t *testing.T) {
	for _, kind := range []KeyType{Ed25519, RSA} {
		t.Run(string(kind), func(t *testing.T) {
			key, other := generate(t, kind), generate(t, kind)
			for _, test := range []struct {
				name string
				of   *PrivateKey
				host string
				good bool
			}{
				{"its own", key, "salt-master", true},
				{"another key", other, "salt-master", false},
				{"another name", key, "other", false},
			} {
				text, err := key.Authority()
				if err != nil {
					t.Fatal(err)
				}
				c, err := test.of.ServerCertificate("salt-master")
				if err != nil {
					t.Fatal(err)
				}
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(text)
				if _, err = c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: test.host}); (err == nil) != test.good {
					t.Errorf("%s: %v, want good: %t", test.name, err, test.good)
				}
				if shown, err := PublicFromCertificate(c.Leaf); err != nil || shown != test.of.Public() {
					t.Errorf("%s: it shows the key %s, %v", test.name, shown, err)
				}
			}
		})
	}
}

func generate(t *testing.T, kind KeyType) *PrivateKey {
	t.Helper()
	k, err := Generate(kind, MinRSABits)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
