package keyring

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// signing is the signature of a master's public key by its signing key, whose public key
// minions have.
type signing struct {
	cfg *config.Master
	key pki.PublicKey // to be signed
	log *slog.Logger
}

// Signature returns the signature of the master's public key, nil if the configuration needs
// none. It is made or read from a file.
func Signature(cfg *config.Master, key pki.PublicKey, log *slog.Logger) ([]byte, error) {
	s := signing{cfg, key, log}
	switch {
	case cfg.MasterSignPubkey && cfg.MasterUsePubkeySignature:
		return s.read()
	case cfg.MasterSignPubkey:
		return s.make()
	case cfg.MasterUsePubkeySignature:
		return nil, config.Mistake(salt.WithHint(errors.New("master_use_pubkey_signature is set, but master_sign_pubkey is not: minions would be shown no signature"),
			"set master_sign_pubkey: True, too, or remove master_use_pubkey_signature"))
	}
	return nil, nil
}

// make signs with the signing pair, which is made if it is missing.
func (s signing) make() ([]byte, error) {
	key, created, err := pki.EnsurePair(s.cfg.PKIDir, s.cfg.MasterSignKeyName, pki.KeyType(s.cfg.KeyType), s.cfg.KeySize)
	if err != nil {
		return nil, err
	}
	if created {
		s.tellMade(key.Public())
	}
	return key.SignPublic(s.key)
}

// tellMade logs that the signing pair was made. A member of a cluster needs that of the others.
func (s signing) tellMade(key pki.PublicKey) {
	level, args := slog.LevelInfo, []any{"fingerprint", key.SHA256()}
	if s.cfg.ClusterID != "" {
		level = slog.LevelWarn
		args = append(args, "hint", fmt.Sprintf("all members of a cluster share this pair. If another member has one, stop this master, copy %[1]s.pem and %[1]s.pub from there, with owner and mode, and start it again", s.cfg.MasterSignKeyName))
	}
	s.log.Log(context.Background(), level, "Generating "+s.cfg.MasterSignKeyName+" keys: "+s.cfg.PKIDir, args...)
}

// read reads the signature made by 'salt-key --gen-signature', perhaps on another machine, and
// checks it: minions would refuse a master with an invalid one.
func (s signing) read() ([]byte, error) {
	name := s.cfg.MasterPubkeySignature
	if name == "" {
		name = "master_pubkey_signature"
	}
	path := filepath.Join(s.cfg.PKIDir, name)
	const elsewhere = ", here or where the signing key is, or set master_pubkey_signature to the name of the file"
	const remedy, anew = "make it with 'salt-key --gen-signature'" + elsewhere, "make it anew with 'salt-key --gen-signature --force'" + elsewhere
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, salt.WithHint(fmt.Errorf("Signing the master.pub key with a signature is enabled but no signature file found at the defined location %s", path), remedy)
	}
	if err != nil {
		return nil, fmt.Errorf("read the signature of the master's key: %w", err)
	}
	sig, err := pki.ParseSignature(text)
	if err != nil {
		return nil, salt.WithHint(fmt.Errorf("%s: %w", path, err), anew)
	}
	s.log.Info("Read master.pub's signature from " + name)
	return sig, s.check(path, sig, anew)
}

func (s signing) check(path string, sig []byte, remedy string) error {
	file := filepath.Join(s.cfg.PKIDir, s.cfg.MasterSignKeyName+".pub")
	key, err := pki.LoadPublic(file)
	if errors.Is(err, fs.ErrNotExist) {
		return salt.WithHint(fmt.Errorf("%s cannot be checked: %w", path, err), "put the public half of the signing pair, which minions have too, to "+file)
	}
	if err != nil {
		return err
	}
	err = key.VerifyPublic(s.key, sig)
	if err != nil && s.cfg.SigningAlgorithm == algorithmSHA1 {
		err = key.VerifyPublicSHA1(s.key, sig)
	}
	if err != nil {
		return salt.WithHint(fmt.Errorf("%s is not a signature of the master's key (%s) by the signing key (%s): %w", path, s.key.SHA256(), key.SHA256(), err), remedy)
	}
	return nil
}

// algorithmSHA1 is the value of signing_algorithm with which Salt's older signatures are
// accepted.
const algorithmSHA1 = "PKCS1v15-SHA1"
