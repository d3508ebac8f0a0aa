package pki

import (
	"crypto/x509"
	"testing"
)

// FuzzCertificate reads what anybody may show in the handshake: a key that is taken from it
// is one that can be recorded, and is the same when it is read again.
func FuzzCertificate(f *testing.F) {
	for _, kind := range []KeyType{Ed25519, RSA} {
		key, err := Generate(kind, 2048)
		if err != nil {
			f.Fatal(err)
		}
		c, err := key.Certificate("web1")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(c.Certificate[0])
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		key, err := PublicFromCertificate(c)
		if err != nil {
			return
		}
		if again, err := ParsePublic(key.PEM()); err != nil || !again.Equal(key) {
			t.Errorf("the key of a certificate comes back as another: %v", err)
		}
	})
}

// FuzzParseSignature reads the signature of a master's key, which is a file.
func FuzzParseSignature(f *testing.F) {
	f.Add([]byte("c2lnbmF0dXJl\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		if sig, err := ParseSignature(text); (err == nil) == (len(sig) == 0) {
			t.Errorf("%q is the signature %x, %v", text, sig, err)
		}
	})
}
