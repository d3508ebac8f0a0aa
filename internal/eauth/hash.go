package eauth

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-crypt/crypt"
	"github.com/go-crypt/crypt/algorithm/argon2"
	"github.com/go-crypt/crypt/algorithm/bcrypt"
	"github.com/go-crypt/crypt/algorithm/scrypt"
	"github.com/go-crypt/crypt/algorithm/shacrypt"
)

// maxSecret limits the length of a password: the principal chooses the input of the hash, but the
// master computes it.
const maxSecret = 1024

// decoders parses hashes with a scheme name. Only schemes made for passwords are accepted, since
// the others are fast to guess.
var decoders = sync.OnceValue(func() *crypt.Decoder {
	d := crypt.NewDecoder()
	err := errors.Join(argon2.RegisterDecoder(d), bcrypt.RegisterDecoderStandard(d), scrypt.RegisterDecoder(d), shacrypt.RegisterDecoder(d))
	if err != nil {
		panic(err) // a duplicate name
	}
	return d
})

// matchCrypt compares a password with a hash of crypt(3): $2y$, $5$, $6$, $y$, $7$, or $argon2id$.
func matchCrypt(hash, secret string) (bool, error) {
	digest, err := decoders().Decode(hash)
	if err != nil {
		return false, fmt.Errorf("%s: %w", hashName(hash), errHash)
	}
	ok, err := digest.MatchAdvanced(secret)
	if err != nil && len(secret) > 72 && strings.HasPrefix(hash, "$2") {
		return false, nil // bcrypt accepts no longer password
	}
	return ok, err
}

// errHash is for unsupported hashes.
var errHash = errors.New("this kind of password hash is not supported, only bcrypt, SHA-crypt, yescrypt, scrypt and argon2")

// hashName returns the scheme of a hash, and nothing else from it.
func hashName(hash string) string {
	switch {
	case strings.HasPrefix(hash, "$apr1$"):
		return "MD5 of Apache (apr1)"
	case strings.HasPrefix(hash, "$1$"):
		return "MD5-crypt"
	case strings.HasPrefix(hash, "{SHA}"):
		return "SHA-1"
	case strings.HasPrefix(hash, "$"):
		kind, _, _ := strings.Cut(hash[1:], "$")
		return fmt.Sprintf("the kind %.12q", kind)
	}
	return "neither a hash of crypt nor plain text that was asked for"
}

// digests are the plain hashes that a file may contain, by the name in its options.
var digests = map[string]func(string) []byte{
	"sha256": func(s string) []byte { b := sha256.Sum256([]byte(s)); return b[:] },
	"sha384": func(s string) []byte { b := sha512.Sum384([]byte(s)); return b[:] },
	"sha512": func(s string) []byte { b := sha512.Sum512([]byte(s)); return b[:] },
}

func matchDigest(digest func(string) []byte, hash, secret string) bool {
	want, err := hex.DecodeString(hash)
	return err == nil && len(want) > 0 && subtle.ConstantTimeCompare(want, digest(secret)) == 1
}

// same compares two texts in a time that reveals at most their lengths.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
