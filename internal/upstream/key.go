package upstream

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/pki"
)

// Open makes the configured uplinks with the minion's own key, which the first start makes. Keep
// connects each.
func Open(s Setup) (*Uplinks, error) {
	var err error
	if s.Key, err = ownKey(s.Config, s.Log); err != nil {
		return nil, err
	}
	warnOfSigningKey(s.Config, s.Log)
	return New(s), nil
}

func ownKey(cfg *config.Minion, log *slog.Logger) (*pki.PrivateKey, error) {
	key, created, err := pki.EnsurePair(cfg.PKIDir, "minion", pki.KeyType(cfg.KeyType), cfg.KeySize)
	if err == nil && created {
		log.Info("generated the minion's keys", "dir", cfg.PKIDir, "fingerprint", key.Public().SHA256())
	}
	return key, err
}

// warnOfSigningKey looks for a key that must never be on a minion: the holder of the private
// signing key can make any key a master's.
func warnOfSigningKey(cfg *config.Minion, log *slog.Logger) {
	warn := func(level slog.Level, file string) {
		log.Log(context.Background(), level, "the private signing key of the masters is on this minion: whoever has it can pretend to be a master. Remove it here, and make a new pair if others may have read it", "file", file)
	}
	base := filepath.Join(cfg.PKIDir, cfg.MasterSignKeyName)
	if _, err := os.Lstat(base + ".pem"); err == nil {
		warn(slog.LevelError, base+".pem")
	}
	if _, err := pki.LoadPublic(base + ".pub"); errors.Is(err, pki.ErrWantedPublic) {
		warn(logging.LevelCritical, base+".pub") // probably the same mistake on all minions
	}
}
