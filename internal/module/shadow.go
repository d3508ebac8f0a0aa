package module

import (
	"context"
	"crypto/rand"
	"regexp"

	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"github.com/brinebus/brine/internal/function"
)

// shadowSalt matches a salt that crypt accepts.
func shadowSalt() *regexp.Regexp { return regexp.MustCompile(`^[./0-9A-Za-z]{1,16}$`) }

// shadowVariant returns an algorithm of random.shadow_hash. crypt's other algorithms are too weak
// for new hashes.
func shadowVariant(name string) (v shacrypt.Variant, known bool) {
	switch name {
	case "sha256":
		return shacrypt.VariantSHA256, true
	case "sha512":
		return shacrypt.VariantSHA512, true
	}
	return v, false
}

// shadowHash returns the hash of a password, by default the one of crypt(3).
func shadowHash(_ context.Context, c *function.Call) (any, error) {
	variant, known := shadowVariant(c.String("algorithm"))
	if !known {
		return nil, function.Invalid("unknown algorithm %q, known are sha256 and sha512", c.String("algorithm"))
	}
	salt, password := c.String("crypt_salt"), c.String("password")
	if salt == "" {
		salt = rand.Text()[:16]
	}
	if !c.Has("password") {
		password = rand.Text()
	}
	if !shadowSalt().MatchString(salt) {
		return nil, function.Invalid("a salt has 1 to 16 letters, digits, dots and slashes")
	}
	h, err := shacrypt.New(shacrypt.WithVariant(variant), shacrypt.WithRounds(shacrypt.IterationsDefaultOmitted))
	if err != nil {
		return nil, err
	}
	d, err := h.HashWithSalt(password, []byte(salt))
	if err != nil {
		return nil, err
	}
	return d.Encode(), nil
}
