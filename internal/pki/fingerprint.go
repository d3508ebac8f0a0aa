package pki

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
)

// DefaultHash is the hash of fingerprints unless the setting hash_type or --finger-hash names
// another.
const DefaultHash = "sha256"

// ErrHash means that a hash is not supported for fingerprints.
var ErrHash = errors.New("unknown hash")

// CheckHash returns an error that lists the supported hashes if name is not one of them.
func CheckHash(name string) error {
	_, err := newHash(name)
	return err
}

// newHash supports the names that Salt accepts. The weak ones are only for comparing with old
// fingerprints.
func newHash(name string) (hash.Hash, error) {
	switch name {
	case "md5":
		return md5.New(), nil
	case "sha1":
		return sha1.New(), nil
	case "sha224":
		return sha256.New224(), nil
	case "sha256", "":
		return sha256.New(), nil
	case "sha384":
		return sha512.New384(), nil
	case "sha512":
		return sha512.New(), nil
	}
	return nil, fmt.Errorf("%w %q: it is one of md5, sha1, sha224, sha256, sha384, sha512", ErrHash, name)
}

// Fingerprint returns the key's fingerprint as Salt computes it: the named hash
// ("" for the default) over the lines between BEGIN and END of the canonical
// PEM, each with its newline, as pairs of hex digits with colons between. The
// zero key has the fingerprint "".
func (p PublicKey) Fingerprint(hashName string) (string, error) {
	h, err := newHash(hashName)
	if err != nil || p.IsZero() {
		return "", err
	}
	h.Write(pemBody(p.PEM()))
	return colonHex(h.Sum(nil)), nil
}

// SHA256 returns the default fingerprint.
func (p PublicKey) SHA256() string {
	if p.IsZero() {
		return ""
	}
	sum := sha256.Sum256(pemBody(p.PEM()))
	return colonHex(sum[:])
}

// pemBody returns a canonical PEM text without its first and last line.
func pemBody(text []byte) []byte {
	first := bytes.IndexByte(text, '\n') + 1
	last := bytes.LastIndex(text, []byte("-----END"))
	return text[first:last]
}

func colonHex(sum []byte) string {
	pairs := make([]string, len(sum))
	for i := range sum {
		pairs[i] = hex.EncodeToString(sum[i : i+1])
	}
	return strings.Join(pairs, ":")
}
