package saltkey

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// sha1Algorithm is the signing_algorithm with which Salt's signatures are accepted.
const sha1Algorithm = "PKCS1v15-SHA1"

// signature is the signature that --gen-signature and --verify-signature handle: a master's
// public key, the key that signs it, and the file with the result.
type signature struct {
	file   string
	signed named
	signer named
}

// named is a public key and the file that it was read from.
type named struct {
	file string
	key  pki.PublicKey
}

// sign makes the signature of the master's public key. A valid one is left unchanged; any other
// is replaced only with --force, since minions may be waiting for exactly that one.
func sign(_ context.Context, t *tool) error {
	file, signed, err := t.toSign()
	if err != nil {
		return err
	}
	if elsewhere, ok := t.signedElsewhere(file, signed); ok {
		return t.tellSignature(elsewhere, false, false)
	}
	key, created, err := t.signingKey()
	if err != nil {
		return err
	}
	s := signature{file, signed, named{t.signingFile(), key.Public()}}
	unlock, err := pki.LockDir(filepath.Dir(file))
	if err != nil {
		return explain(err)
	}
	defer unlock()
	written, err := t.writeSignature(s, key)
	if err != nil {
		return explain(err)
	}
	return t.tellSignature(s, created, written)
}

// toSign returns the file of the signature, and the key to sign.
func (t *tool) toSign() (file string, signed named, err error) {
	if file, err = t.signatureFile(); err != nil {
		return "", signed, err
	}
	signed, err = t.signedKey()
	return file, signed, err
}

// writeSignature writes the file of s unless it is valid already.
func (t *tool) writeSignature(s signature, key *pki.PrivateKey) (written bool, err error) {
	switch err := t.check(s); {
	case err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist) && !t.opts.Bool("force"):
		return false, salt.WithHint(err, "--force replaces it")
	}
	sig, err := key.SignPublic(s.signed.key)
	if err != nil {
		return false, fmt.Errorf("sign %s: %w", s.signed.file, err)
	}
	return true, atomicfile.Write(s.file, pki.FormatSignature(sig), 0o644)
}

func (t *tool) tellSignature(s signature, created, written bool) error {
	if !t.forPeople() {
		return t.showUnlessQuiet(map[string]any{
			"signature": s.file, "written": written, "key_created": created,
			"signed": t.nameAndFinger(s.signed), "key": t.nameAndFinger(s.signer),
		})
	}
	if created {
		if err := t.tell("New signing key: %s", s.signer.file); err != nil {
			return err
		}
	}
	what := "The valid signature was left as it is"
	if written {
		what = "The signature was written"
	}
	return t.tell("%s: %s\n%s", what, s.file, t.keysOf(s))
}

// keysOf names both keys of a signature by file and fingerprint.
func (t *tool) keysOf(s signature) string {
	return fmt.Sprintf("  of key     %s  %s\n  signed by  %s  %s",
		t.fingerprint(s.signed.key), s.signed.file, t.fingerprint(s.signer.key), s.signer.file)
}

func (t *tool) nameAndFinger(n named) map[string]any {
	return map[string]any{"file": n.file, "fingerprint": t.bareFingerprint(n.key)}
}

// verifySignature checks the file that sign makes.
func verifySignature(_ context.Context, t *tool) error {
	file, signed, err := t.toSign()
	if err != nil {
		return err
	}
	signer, err := t.verifyingKey()
	if err != nil {
		return err
	}
	s := signature{file, signed, signer}
	if err := t.check(s); err != nil {
		return explain(salt.WithHint(err, "make it with: salt-key --gen-signature"))
	}
	if !t.forPeople() {
		return t.showUnlessQuiet(map[string]any{
			"signature": s.file, "valid": true, "signed": t.nameAndFinger(signed), "key": t.nameAndFinger(signer),
		})
	}
	return t.tell("The signature is valid: %s\n%s", s.file, t.keysOf(s))
}

// check reads the file of s and returns nil if it contains the signature of s.
func (t *tool) check(s signature) error {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}
	sig, err := pki.ParseSignature(text)
	if err != nil {
		return fmt.Errorf("%s: %w", s.file, err)
	}
	if s.signer.key.VerifyPublic(s.signed.key, sig) == nil {
		return nil
	}
	if s.signer.key.VerifyPublicSHA1(s.signed.key, sig) == nil {
		if t.cfg.SigningAlgorithm == sha1Algorithm {
			return nil
		}
		return fmt.Errorf("signature %s: it was made with SHA-1, and signing_algorithm does not allow that", s.file)
	}
	return fmt.Errorf("signature %s: %w\n%s", s.file, pki.ErrSignature, t.keysOf(s))
}

// signatureFile returns the path of the signature, whose directory must exist.
func (t *tool) signatureFile() (string, error) {
	dir := t.cfg.PKIDir
	if given := t.opts.String("signature-path"); given != "" {
		dir = given
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil && t.opts.IsSet("signature-path"):
		return "", salt.WithHint(err, "--signature-path names a directory that exists")
	case err != nil:
		return "", explain(fmt.Errorf("key directory %s: %w", dir, errors.Unwrap(err)))
	case !info.IsDir():
		return "", salt.WithHint(fmt.Errorf("%s is not a directory", dir),
			fmt.Sprintf("--signature-path names the directory in which %s is or will be", t.cfg.MasterPubkeySignature))
	}
	return filepath.Join(dir, t.cfg.MasterPubkeySignature), nil
}

// signedKey returns the public key to be signed.
func (t *tool) signedKey() (named, error) {
	file := t.opts.String("pub")
	if file == "" {
		file = filepath.Join(t.cfg.PKIDir, "master.pub")
	}
	key, err := pki.LoadPublic(file)
	if errors.Is(err, fs.ErrNotExist) && !t.opts.IsSet("pub") {
		err = salt.WithHint(err, "the master makes it when it starts for the first time; --pub names another file")
	}
	return named{file, key}, explain(err)
}

func (t *tool) signingFile() string {
	if file := t.opts.String("priv"); file != "" {
		return file
	}
	return filepath.Join(t.cfg.PKIDir, t.cfg.MasterSignKeyName+".pem")
}

// signingKey loads the private key that signs. With --auto-create it makes the pair in pki_dir
// if it is missing.
func (t *tool) signingKey() (key *pki.PrivateKey, created bool, err error) {
	key, err = pki.LoadPrivate(t.signingFile())
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing, t.opts.IsSet("priv"), err == nil && !t.opts.Bool("auto-create"):
		return key, false, explain(err)
	case !t.opts.Bool("auto-create"):
		return nil, false, salt.WithHint(err, "--auto-create makes it; a system of several masters copies one pair to all of them")
	}
	kind, bits, err := t.keyKind()
	if err != nil {
		return nil, false, err
	}
	if missing {
		if err := t.setAside(); err != nil {
			return nil, false, explain(err)
		}
	}
	key, created, err = pki.EnsurePair(t.cfg.PKIDir, t.cfg.MasterSignKeyName, kind, bits)
	return key, created, explain(err)
}

// verifyingFile is the public half of the signing pair of this master.
func (t *tool) verifyingFile() string {
	return filepath.Join(t.cfg.PKIDir, t.cfg.MasterSignKeyName+".pub")
}

// signedElsewhere returns the existing signature, with --auto-create on a master that has only
// the public key of the signing pair: if the signature is valid, nothing is missing, and the
// private key is on another machine.
func (t *tool) signedElsewhere(file string, signed named) (signature, bool) {
	if !t.opts.Bool("auto-create") || t.opts.IsSet("priv") {
		return signature{}, false
	}
	if _, err := os.Lstat(t.signingFile()); !errors.Is(err, fs.ErrNotExist) {
		return signature{}, false
	}
	signer, err := t.verifyingKey()
	if err != nil {
		return signature{}, false
	}
	s := signature{file, signed, signer}
	return s, t.check(s) == nil
}

// setAside makes room for a new signing pair if a public key without its private key exists,
// for which nothing can be signed any more. It is kept, since minions have it.
func (t *tool) setAside() error {
	file := t.verifyingFile()
	err := os.Rename(file, file+".old")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		t.env.Warn(salt.WithHint(fmt.Errorf("%s was there without its private half, and is now %s.old", file, filepath.Base(file)), "give minions the public half of the new pair"))
	}
	return err
}

// verifyingKey returns the public key of the signing pair: from its own file, which is what
// minions have, or from the private key that --priv names.
func (t *tool) verifyingKey() (named, error) {
	if t.opts.IsSet("priv") {
		key, err := pki.LoadPrivate(t.signingFile())
		if err != nil {
			return named{}, explain(err)
		}
		return named{t.signingFile(), key.Public()}, nil
	}
	file := t.verifyingFile()
	key, err := pki.LoadPublic(file)
	return named{file, key}, explain(err)
}
