package pki

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// KeyType names an algorithm, as the configuration key key_type does.
type KeyType string

// The algorithms of identity keys. New keys are Ed25519 by default; RSA is for the key files of
// existing Salt installations.
const (
	Ed25519 KeyType = "ed25519"
	RSA     KeyType = "rsa"
)

// Sizes of RSA keys in bits. Salt has the same minimum; the maximum is the largest that Go's
// TLS supports.
const (
	MinRSABits     = 2048
	DefaultRSABits = 4096
	MaxRSABits     = 8192
)

// Errors for callers to test for.
var (
	ErrKeySize   = errors.New("unusable RSA key size")
	ErrKeyType   = errors.New("unsupported key type")
	ErrSignature = errors.New("the signature does not fit")
)

// PrivateKey is an identity. When printed, it shows its fingerprint only.
type PrivateKey struct {
	signer crypto.Signer
	public PublicKey
}

// PublicKey is the public key of an identity. Equal keys are equal by ==, so it may be a map
// key. The zero value is not a key: it equals no parsed key and verifies nothing.
type PublicKey struct {
	der string // SubjectPublicKeyInfo, checked by newPublicKey
}

// Generate makes a key. bits is the size of an RSA key, 0 for the default; it is ignored for
// Ed25519.
func Generate(t KeyType, bits int) (*PrivateKey, error) {
	switch t {
	case Ed25519, "":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		return newPrivateKey(key)
	case RSA:
		return generateRSA(bits)
	}
	return nil, fmt.Errorf("%w %q: the types are ed25519 and rsa", ErrKeyType, string(t))
}

func generateRSA(bits int) (*PrivateKey, error) {
	if bits == 0 {
		bits = DefaultRSABits
	}
	if err := checkRSABits(bits); err != nil {
		return nil, err
	}
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, err
	}
	return newPrivateKey(key)
}

func checkRSABits(bits int) error {
	if bits < MinRSABits || bits > MaxRSABits {
		return fmt.Errorf("%w: %d bits, an RSA key has %d to %d", ErrKeySize, bits, MinRSABits, MaxRSABits)
	}
	return nil
}

// newPrivateKey wraps a parsed or generated key, if its type is supported.
func newPrivateKey(key any) (*PrivateKey, error) {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w %T", ErrKeyType, key)
	}
	public, err := newPublicKey(signer.Public())
	if err != nil {
		return nil, err
	}
	return &PrivateKey{signer, public}, nil
}

// newPublicKey is the only function that makes a non-zero PublicKey.
func newPublicKey(key crypto.PublicKey) (PublicKey, error) {
	switch k := key.(type) {
	case ed25519.PublicKey:
		if len(k) != ed25519.PublicKeySize {
			return PublicKey{}, fmt.Errorf("an Ed25519 key has %d bytes, not %d", ed25519.PublicKeySize, len(k))
		}
	case *rsa.PublicKey:
		if err := checkRSABits(k.N.BitLen()); err != nil {
			return PublicKey{}, err
		}
	default:
		return PublicKey{}, fmt.Errorf("%w %T: keys are Ed25519 or RSA", ErrKeyType, key)
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, err
	}
	return PublicKey{string(der)}, nil
}

// Public returns the public key.
func (k *PrivateKey) Public() PublicKey { return k.public }

// Signer returns the key in the form that crypto/tls needs.
func (k *PrivateKey) Signer() crypto.Signer { return k.signer }

// Type returns the algorithm.
func (k *PrivateKey) Type() KeyType { return k.public.Type() }

// Format keeps the secret out of logs and messages, for every verb.
func (k *PrivateKey) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "private key of %s", k.public.SHA256())
}

// Sign returns the signature over data: pure Ed25519, or for RSA PKCS #1 v1.5 with SHA-256,
// which Salt and openssl can verify, too.
func (k *PrivateKey) Sign(data []byte) ([]byte, error) {
	if k.Type() == Ed25519 {
		return k.signer.Sign(nil, data, crypto.Hash(0))
	}
	sum := sha256.Sum256(data)
	return k.signer.Sign(rand.Reader, sum[:], crypto.SHA256)
}

// IsZero reports whether p is not a key at all.
func (p PublicKey) IsZero() bool { return p.der == "" }

// Equal reports whether both are the same key. It is for go-cmp and the convention of package
// crypto; == does the same, except that two zero values are not Equal.
func (p PublicKey) Equal(other PublicKey) bool { return p == other && !p.IsZero() }

// Key returns the key as a type of the standard library: an ed25519.PublicKey or a
// *rsa.PublicKey; nil for the zero value.
func (p PublicKey) Key() crypto.PublicKey {
	if raw, ok := strings.CutPrefix(p.der, ed25519Head); ok && len(raw) == ed25519.PublicKeySize {
		return ed25519.PublicKey(raw)
	}
	key, err := x509.ParsePKIXPublicKey([]byte(p.der))
	if err != nil {
		return nil // the zero value: newPublicKey marshalled all others
	}
	return key
}

// ed25519Head is the start of the DER form of every Ed25519 key (RFC 8410); the key follows.
// With it, the key need not be parsed for each signature check.
const ed25519Head = "\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"

// Type returns the algorithm, "" for the zero value.
func (p PublicKey) Type() KeyType {
	switch p.Key().(type) {
	case ed25519.PublicKey:
		return Ed25519
	case *rsa.PublicKey:
		return RSA
	}
	return ""
}

// String returns the default fingerprint, for messages.
func (p PublicKey) String() string { return p.SHA256() }

// Verify returns nil if PrivateKey.Sign of this key has made sig over data, otherwise an error
// that wraps ErrSignature.
func (p PublicKey) Verify(data, sig []byte) error {
	switch key := p.Key().(type) {
	case ed25519.PublicKey:
		if ed25519.Verify(key, data, sig) {
			return nil
		}
	case *rsa.PublicKey:
		sum := sha256.Sum256(data)
		if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig) == nil {
			return nil
		}
	}
	return fmt.Errorf("verify with key %s: %w", p.SHA256(), ErrSignature)
}
