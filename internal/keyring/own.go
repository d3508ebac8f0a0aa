package keyring

import (
	"log/slog"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
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
