package saltcall

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"brine/internal/config"
	"brine/internal/grain"
	"brine/internal/module"
	"brine/internal/pki"
	"brine/internal/returner"
	"brine/internal/version"
)

// newHost is this machine without any bus. Facts are collected when a function
// first asks for them: most never do.
func newHost(cfg *config.Minion, log *slog.Logger) *module.Host {
	file := filepath.Join(cfg.ConfigDir, "grains")
	collect := func() map[string]any {
		o := grain.Options{ID: cfg.ID, ConfigGrains: cfg.Grains, GrainsFile: file, Version: version.Version()}
		if len(cfg.Master) > 0 {
			o.Master = cfg.Master[0]
		}
		facts, err := grain.Collect(context.Background(), o) // bounded by package grain
		if err != nil {
			log.Warn("facts are incomplete", "err", err)
		}
		return facts
	}
	h := &module.Host{
		ID: cfg.ID, Version: version.Version(), Config: cfg.Raw, GrainsFile: file, CacheDir: cfg.CacheDir, Log: log, Returners: returner.Names(), Grains: sync.OnceValue(collect),
	}
	if key, err := pki.LoadPublic(filepath.Join(cfg.PKIDir, "minion.pub")); err == nil {
		h.Fingerprint = key.SHA256()
	}
	if key, err := pki.LoadPublic(filepath.Join(cfg.PKIDir, "minion_master.pub")); err == nil {
		h.MasterFingerprint = key.SHA256()
	}
	return h
}
