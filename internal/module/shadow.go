package module

import (
	"context"
	"crypto/rand"
	"regexp"

	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"github.com/brinebus/brine/internal/function"
)

// shadowSalt is what crypt takes for a salt.
func shadowSalt() *regexp.Regexp { return regexp.MustCompile(`^[./0-9A-Za-z]{1,16}$`) }

// shadowVariant is an algorithm of random.shadow_hash. Others that crypt knows are too
// weak to be made anew.
func shadowVariant(name string) (v shacrypt.Variant, known bool) {
	switch name {
	case "sha256":
		return shacrypt.VariantSHA256, true
	case "sha512":
		return shacrypt.VariantSHA512, true
	}
	return v, false
}

// shadowHash is the hash of a password as crypt(3) makes it by default.
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
