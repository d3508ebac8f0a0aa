package saltcall

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/version"
)

// newHost is this machine without any bus. Facts are collected, and files read, when
// a function first asks for them: most never do.
func newHost(cfg *config.Minion, log *slog.Logger) *module.Host {
	file := filepath.Join(cfg.ConfigDir, "grains")
	modules, custom := extension.OfMinion(extension.Modules, cfg.ModuleDirs, cfg.CacheDir, log), extension.OfMinion(extension.Returners, cfg.ModuleDirs, cfg.CacheDir, log)
	collect := func() map[string]any {
		o := grain.Options{ID: cfg.ID, ConfigGrains: cfg.Grains, GrainsFile: file, Version: version.Version()}
		if len(cfg.Master) > 0 {
			o.Master = cfg.Master[0]
		}
		o.Custom = extension.OfMinion(extension.Grains, cfg.ModuleDirs, cfg.CacheDir, log).Collect(context.Background(), extension.Request{ID: cfg.ID, Options: cfg.Raw}, extension.Env{ConfigDir: cfg.ConfigDir})
		facts, err := grain.Collect(context.Background(), o) // bounded by package grain
		if err != nil {
			log.Warn("facts are incomplete", "err", err)
		}
		return facts
	}
	fresh := func(context.Context) error { return nil } // facts of a call are its own: nobody keeps them
	return &module.Host{
		ID: cfg.ID, Version: version.Version(), Config: cfg.Raw, ConfigDir: cfg.ConfigDir, PKIDir: cfg.PKIDir, PIDFile: cfg.PIDFile, GrainsFile: file, Custom: modules, Files: fileserver.NewCache(cfg.CacheDir, fileserver.NewRoots(cfg.FileRoots)), CacheDir: cfg.CacheDir, Log: log, Returners: func() []string { return returner.Names(custom) }, Grains: sync.OnceValue(collect), RefreshGrains: fresh, RefreshPillar: fresh,
		Fingerprint: fingerprintOf(cfg.PKIDir, "minion.pub"), MasterFingerprint: fingerprintOf(cfg.PKIDir, "minion_master.pub"),
	}
}

// fingerprintOf reads a public key when it is asked for; without one it is "".
func fingerprintOf(dir, file string) func() string {
	return func() string {
		key, err := pki.LoadPublic(filepath.Join(dir, file))
		if err != nil {
			return ""
		}
		return key.SHA256()
	}
}
