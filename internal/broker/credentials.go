package broker

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Credentials are the keys with which the masters of one system use NATS servers that others
// run. All are derived from the one seed in the file: each user has a key of its own, so that
// each may do only its part, and the servers know public keys only.
type Credentials struct {
	file     string        // of the seed
	traffic  nkeys.KeyPair // the user that talks with minions
	answerer nkeys.KeyPair // the user that answers who may connect
	watcher  nkeys.KeyPair // the user of the system account
	store    nkeys.KeyPair // the user of the account with the journal, if that is there
	issuer   nkeys.KeyPair // signs what minions may do
	curve    nkeys.KeyPair // opens the requests of the servers
}

// FindCredentials reads the file with the seed. If there is none, and named says that the configuration does not
// name the file, it makes one, and calls made: the servers do not know that seed yet. A file that is named was
// copied or moved to where it is, and without it something else is wrong than that there is none.
func FindCredentials(file string, named bool, made func(file string)) (*Credentials, error) {
	c, err := ReadCredentials(file)
	switch {
	case named && errors.Is(err, errNoSeed):
		return nil, salt.WithHint(err, "copy the file of another master of the system, or leave nats_creds out: a new one is made in pki_dir then, which the servers must be told")
	case !errors.Is(err, fs.ErrNotExist):
		return c, err
	case named:
		return nil, salt.WithHint(err, "check the path, or copy the file of another master of the system; for a new system leave nats_creds out, and move the file that is made then")
	}
	if c, err = EnsureCredentials(file); err == nil {
		made(file)
	}
	return c, err
}

// EnsureCredentials reads the file with the seed, and makes one if there is none.
func EnsureCredentials(file string) (*Credentials, error) {
	c, err := ReadCredentials(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, err
	}
	err = os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = atomicfile.Write(file, append(seed, '\n'), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("make nats_creds: %w", err)
	}
	return ReadCredentials(file)
}

// CheckAuthorities returns an error if the file with authorities cannot be used; an empty name is no mistake.
func CheckAuthorities(file string) error {
	if file == "" {
		return nil
	}
	_, err := pki.ServerPins{CAFile: file}.TLS()
	return err
}

// CheckCredentials returns an error if the file with the seed cannot be used. One that is missing would be made, and is a
// mistake only if it is named.
func CheckCredentials(file string, named bool) error {
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) && !named {
		return nil
	}
	find := ReadCredentials
	if named {
		find = func(file string) (*Credentials, error) { return FindCredentials(file, true, nil) }
	}
	_, err := find(file)
	return err
}

// errNoSeed is wrapped by the error about a file without the seed that it should have.
var errNoSeed = errors.New("there is no seed of a user")

// ReadCredentials reads the file with the seed. One of another user, or that others may read, is refused.
func ReadCredentials(file string) (*Credentials, error) {
	text, err := pki.ReadSecret(file)
	if named := (*fs.PathError)(nil); errors.As(err, &named) {
		return nil, fmt.Errorf("nats_creds: %w", err)
	}
	if err != nil {
		return nil, salt.WithHint(fmt.Errorf("nats_creds: %s: %w", file, err), salt.Hint(err))
	}
	prefix, raw, err := nkeys.DecodeSeed([]byte(strings.TrimSpace(string(text))))
	if err != nil || prefix != nkeys.PrefixByteUser {
		return nil, salt.WithHint(fmt.Errorf("nats_creds: %w in %s", errNoSeed, file), "copy the file of another master of the system, or remove it: a new one is made then, which the servers must be told")
	}
	c, err := deriveCredentials(raw)
	if err == nil {
		c.file = file
	}
	return c, err
}

// deriveCredentials derives each key from the seed and its own purpose.
func deriveCredentials(seed []byte) (*Credentials, error) {
	c := new(Credentials)
	for _, k := range []struct {
		purpose string
		kind    nkeys.PrefixByte
		to      *nkeys.KeyPair
	}{
		{"traffic", nkeys.PrefixByteUser, &c.traffic}, {"answerer", nkeys.PrefixByteUser, &c.answerer}, {"watcher", nkeys.PrefixByteUser, &c.watcher},
		{"store", nkeys.PrefixByteUser, &c.store},
		{"issuer", nkeys.PrefixByteAccount, &c.issuer}, {"curve", nkeys.PrefixByteCurve, &c.curve},
	} {
		raw, err := hkdf.Key(sha256.New, seed, nil, "brine nats "+k.purpose, 32)
		if err != nil {
			return nil, err
		}
		text, err := nkeys.EncodeSeed(k.kind, raw)
		if err != nil {
			return nil, err
		}
		if k.kind == nkeys.PrefixByteCurve {
			*k.to, err = nkeys.FromCurveSeed(text)
		} else {
			*k.to, err = nkeys.FromSeed(text)
		}
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// public returns the public half of a key, which Credentials always have.
func public(k nkeys.KeyPair) string {
	p, err := k.PublicKey()
	if err != nil {
		return "" // the server knows no user of that name
	}
	return p
}
