package keyring

import (
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

// Own is the master's own key.
type Own struct {
	*pki.PrivateKey
	Signature []byte // of its public key by the signing key; nil if the configuration needs none
}

// OpenOwn loads the master's own key, which the first start makes, and its signature.
func OpenOwn(cfg *config.Master, log *slog.Logger) (Own, error) {
	key, created, err := pki.EnsurePair(cfg.PKIDir, "master", pki.KeyType(cfg.KeyType), cfg.KeySize)
	if err != nil {
		return Own{}, err
	}
	if created {
		log.Info("generated the master's keys", "dir", cfg.PKIDir, "type", string(key.Type()))
	}
	s, err := Signature(cfg, key.Public(), log)
	return Own{key, s}, err
}

// CheckOwn returns why OpenOwn would fail as far as the files say it, and changes nothing. All that is wrong is in the error.
func CheckOwn(cfg *config.Master) error {
	key, there, err := pki.CheckPair(cfg.PKIDir, "master")
	var bad error
	switch {
	case cfg.MasterUsePubkeySignature && (there && err == nil || !cfg.MasterSignPubkey):
		_, bad = Signature(cfg, key, slog.New(slog.DiscardHandler)) // it is read, and nothing is made
	case cfg.MasterSignPubkey && !cfg.MasterUsePubkeySignature:
		_, _, bad = pki.CheckPair(cfg.PKIDir, cfg.MasterSignKeyName)
	}
	return errors.Join(err, bad)
}

// MissingSigningPair warns that OpenOwn would make a signing pair for a member of a cluster, or one of two masters that mirror each
// other: with another pair than the others have, it never joins them. It is "" where none would be made.
func MissingSigningPair(cfg *config.Master) string {
	if cfg.ClusterID == "" && cfg.JournalMirror == "" || !cfg.MasterSignPubkey || cfg.MasterUsePubkeySignature {
		return ""
	}
	if _, there, err := pki.CheckPair(cfg.PKIDir, cfg.MasterSignKeyName); there || err != nil {
		return ""
	}
	if cfg.ClusterID == "" {
		return fmt.Sprintf("there is no signing pair %[1]s in %[2]s: a start makes a new one. Both masters share this pair: if the other one has it, copy %[1]s.pem and %[1]s.pub from there, with owner and mode; with another pair each refuses the links of the other one", cfg.MasterSignKeyName, cfg.PKIDir)
	}
	return fmt.Sprintf("there is no signing pair %[1]s in %[2]s: a start makes a new one. All members of a cluster share this pair: if another member has one, copy %[1]s.pem and %[1]s.pub from there, with owner and mode; with another pair this member waits for the others without end", cfg.MasterSignKeyName, cfg.PKIDir)
}

// ReadOwn is OpenOwn for a look at what the next start will have with this configuration: it makes
// neither a key nor a signing pair, and it is an error if one is missing.
func ReadOwn(cfg *config.Master, log *slog.Logger) (Own, error) {
	key, err := pki.LoadPrivate(filepath.Join(cfg.PKIDir, "master.pem"))
	if err != nil {
		return Own{}, err
	}
	if cfg.MasterSignPubkey && !cfg.MasterUsePubkeySignature {
		path := filepath.Join(cfg.PKIDir, cfg.MasterSignKeyName+".pem")
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = salt.WithHint(fmt.Errorf("%s is missing, the signing key that all members share", path), fmt.Sprintf("copy it, and its .pub, with owner and mode from a member that has minions already. If none has it, and no minion has its .pub, make it here: salt-key --gen-keys %s --gen-keys-dir %s, and copy it to the other members. With a signature made in advance, set master_use_pubkey_signature", cfg.MasterSignKeyName, cfg.PKIDir))
		}
		if err != nil {
			return Own{}, err
		}
	}
	s, err := Signature(cfg, key.Public(), log)
	return Own{key, s}, err
}
