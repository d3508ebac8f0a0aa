package saltkey

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// generate makes the key pair that --gen-keys names. An existing pair is left unchanged, so
// that a script may repeat the call.
func generate(_ context.Context, t *tool) error {
	name, dir := t.opts.String("gen-keys"), t.opts.String("gen-keys-dir")
	if _, err := salt.ParseMinionID(name); err != nil { // it becomes a file name
		return cli.Fail(cli.Usage, fmt.Errorf("option --gen-keys: %w", err))
	}
	kind, bits, err := t.keyKind()
	if err != nil {
		return err
	}
	private, public := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".pub")
	key, created, err := makePair(dir, name, private, kind, bits)
	if err != nil {
		return explain(err)
	}
	if !created && !t.quiet() {
		t.env.Note("%s exists already and was left as it is", private)
	}
	if !t.forPeople() {
		return t.showUnlessQuiet(map[string]any{
			"private": private, "public": public, "created": created,
			"type": string(key.Type()), "fingerprint": t.bareFingerprint(key.Public()),
		})
	}
	return t.tell("%s, %s\n%s", private, public, t.fingerprint(key.Public()))
}

func makePair(dir, name, private string, kind pki.KeyType, bits int) (key *pki.PrivateKey, created bool, err error) {
	key, err = pki.LoadPrivate(private)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, false, err
	}
	if key, err = pki.Generate(kind, bits); err != nil {
		return nil, false, err
	}
	if err = key.WritePair(dir, name); errors.Is(err, fs.ErrExist) { // another process was faster
		key, err = pki.LoadPrivate(private)
		return key, false, err
	}
	return key, err == nil, err
}

// keyKind returns what kind of key to make. With a size it is RSA.
func (t *tool) keyKind() (kind pki.KeyType, bits int, err error) {
	kind, bits = pki.KeyType(t.cfg.KeyType), t.opts.Int("keysize")
	if t.opts.IsSet("keysize") {
		kind = pki.RSA
	}
	if t.opts.IsSet("key-type") {
		kind = pki.KeyType(t.opts.String("key-type"))
	}
	switch {
	case kind != pki.Ed25519 && kind != pki.RSA:
		return "", 0, cli.Usagef("option --key-type: %q is not one of ed25519, rsa", kind)
	case t.opts.IsSet("keysize") && kind != pki.RSA:
		return "", 0, cli.Usagef("--keysize is for RSA keys; an Ed25519 key has one size")
	case t.opts.IsSet("keysize") && bits < pki.MinRSABits:
		return "", 0, cli.Usagef("the minimum value for keysize is %d", pki.MinRSABits)
	case t.opts.IsSet("keysize") && bits > pki.MaxRSABits:
		return "", 0, cli.Usagef("the maximum value for keysize is %d", pki.MaxRSABits)
	case !t.opts.IsSet("keysize") && t.cfg.Raw["keysize"] != nil:
		bits = t.cfg.KeySize
	}
	return kind, bits, nil
}
