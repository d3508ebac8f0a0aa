package master

import (
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
)

// showSignature returns the certificate extension with the signature of the
// master's public key, none where the configuration asks for none. It is made,
// or read, once at the start.
func (m *Master) showSignature() ([]pkix.Extension, error) {
	if !m.cfg.MasterSignPubkey {
		if m.cfg.MasterUsePubkeySignature {
			return nil, config.Mistake(salt.WithHint(errors.New("master_use_pubkey_signature is set, but master_sign_pubkey is not: minions would be shown no signature"),
				"set master_sign_pubkey: True, too, or remove master_use_pubkey_signature"))
		}
		return nil, nil
	}
	sign := m.makeSignature
	if m.cfg.MasterUsePubkeySignature {
		sign = m.readSignature
	}
	sig, err := sign()
	if err != nil {
		return nil, err
	}
	return []pkix.Extension{{Id: upstream.SignatureOID, Value: sig}}, nil
}

// makeSignature signs with the signing pair, which is made when missing.
func (m *Master) makeSignature() ([]byte, error) {
	key, created, err := pki.EnsurePair(m.cfg.PKIDir, m.cfg.MasterSignKeyName, pki.KeyType(m.cfg.KeyType), m.cfg.KeySize)
	if err != nil {
		return nil, err
	}
	if created {
		m.log.Info("Generating "+m.cfg.MasterSignKeyName+" keys: "+m.cfg.PKIDir, "fingerprint", key.Public().SHA256())
	}
	return key.SignPublic(m.key.Public())
}

// readSignature reads the signature that 'salt-key --gen-signature' made, perhaps
// on another machine, and checks it: minions would refuse a master with another one.
func (m *Master) readSignature() ([]byte, error) {
	name := m.cfg.MasterPubkeySignature
	if name == "" {
		name = "master_pubkey_signature"
	}
	path := filepath.Join(m.cfg.PKIDir, name)
	remedy := "make it with 'salt-key --gen-signature', here or where the signing key is, or set master_pubkey_signature to the name of the file"
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, salt.WithHint(fmt.Errorf("Signing the master.pub key with a signature is enabled but no signature file found at the defined location %s", path), remedy)
	}
	if err != nil {
		return nil, fmt.Errorf("read the signature of the master's key: %w", err)
	}
	sig, err := pki.ParseSignature(text)
	if err != nil {
		return nil, salt.WithHint(fmt.Errorf("%s: %w", path, err), remedy)
	}
	m.log.Info("Read master.pub's signature from " + name)
	return sig, m.checkSignature(path, sig, remedy)
}

func (m *Master) checkSignature(path string, sig []byte, remedy string) error {
	file := filepath.Join(m.cfg.PKIDir, m.cfg.MasterSignKeyName+".pub")
	key, err := pki.LoadPublic(file)
	if errors.Is(err, fs.ErrNotExist) {
		return salt.WithHint(fmt.Errorf("%s cannot be checked: %w", path, err), "put the public half of the signing pair, which minions have too, to "+file)
	}
	if err != nil {
		return err
	}
	err = key.VerifyPublic(m.key.Public(), sig)
	if err != nil && m.cfg.SigningAlgorithm == algorithmSHA1 {
		err = key.VerifyPublicSHA1(m.key.Public(), sig)
	}
	if err != nil {
		return salt.WithHint(fmt.Errorf("%s is no signature of the master's key (%s) by the signing key (%s): %w", path, m.key.Public().SHA256(), key.SHA256(), err), remedy)
	}
	return nil
}

// algorithmSHA1 is the value of signing_algorithm with which Salt's older
// signatures are taken.
const algorithmSHA1 = "PKCS1v15-SHA1"
