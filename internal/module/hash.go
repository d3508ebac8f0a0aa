package module

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// hashes are the digests that functions offer by name. MD5 and SHA-1 are only for comparing
// published checksums, never for protection.
var hashes = []struct {
	name string
	new  func() hash.Hash
}{
	{"md5", md5.New},
	{"sha1", sha1.New},
	{"sha224", sha256.New224},
	{"sha256", sha256.New},
	{"sha384", sha512.New384},
	{"sha512", sha512.New},
}

// newHash returns the digest with that name.
func newHash(name string) (hash.Hash, error) {
	var known []string
	for _, h := range hashes {
		if h.name == strings.ToLower(name) {
			return h.new(), nil
		}
		known = append(known, h.name)
	}
	return nil, function.Invalid("unknown hash type %q, known are %s", name, strings.Join(known, ", "))
}
