// Package machine is this machine as functions see it without a bus: its facts, its files and its
// keys. What needs a bus is in package route.
package machine

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/brinebus/brine/internal/beacon"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/version"
)

// New returns the host of a minion without a bus. Facts are collected, and files read, when a
// function first needs them: most never do.
func New(cfg *config.Minion, log *slog.Logger) (*function.Host, *module.Services) {
	file := filepath.Join(cfg.ConfigDir, "grains")
	modules, custom := extension.OfMinion(extension.Modules, cfg.ModuleDirs, cfg.CacheDir, log), extension.OfMinion(extension.Returners, cfg.ModuleDirs, cfg.CacheDir, log)
	collect := func() map[string]any {
		o := grain.Options{ID: cfg.ID, ConfigGrains: cfg.Grains, GrainsFile: file, Version: version.Version(), Blacklist: cfg.GrainsBlacklist}
		if len(cfg.Master) > 0 {
			o.Master = cfg.Master[0]
		}
		o.Custom = extension.OfMinion(extension.Grains, cfg.ModuleDirs, cfg.CacheDir, log).Collect(context.Background(), extension.Request{ID: cfg.ID, Options: cfg.Raw}, extension.Env{ConfigDir: cfg.ConfigDir})
		facts, err := grain.Collect(context.Background(), o) // package grain limits the time
		if err != nil {
			log.Warn("facts are incomplete", "err", err)
		}
		return facts
	}
	services := &module.Services{
		Facts: ownFacts{}, Files: fileserver.NewCache(cfg.CacheDir, fileserver.NewRoots(cfg.FileRoots)), Keys: keyFiles{cfg.PKIDir},
		Returners: func() []string { return returner.Names(custom) }, BeaconKinds: beacon.Kinds,
	}
	return &function.Host{
		ID: cfg.ID, Version: version.Version(), Config: cfg.Raw, Data: ownData(sync.OnceValue(collect)), Custom: modules, Log: log,
		Paths:    function.Paths{ConfigDir: cfg.ConfigDir, PKIDir: cfg.PKIDir, PIDFile: cfg.PIDFile, GrainsFile: file, CacheDir: cfg.CacheDir},
		Services: services,
	}, services
}

// ownData implements function.Data for a minion without a master: grains but no pillar.
type ownData func() map[string]any

// Grains implements function.Data.
func (d ownData) Grains() map[string]any { return d() }

// Pillar implements function.Data.
func (ownData) Pillar() map[string]any { return map[string]any{} }

// PillarErrors implements function.Data.
func (ownData) PillarErrors() []string { return nil }

// ownFacts implements module.Refresher: a call collects its own facts, so there is nothing to
// refresh.
type ownFacts struct{}

// RefreshGrains implements module.Refresher.
func (ownFacts) RefreshGrains(context.Context) error { return nil }

// RefreshPillar implements module.Refresher.
func (ownFacts) RefreshPillar(context.Context) error { return nil }

// keyFiles implements module.Keys for a directory; files are read when they are needed.
type keyFiles struct{ dir string }

// Fingerprint implements module.Keys.
func (k keyFiles) Fingerprint() string { return k.read("minion.pub") }

// MasterFingerprint implements module.Keys.
func (k keyFiles) MasterFingerprint() string { return k.read("minion_master.pub") }

// read returns the fingerprint of a public key; "" for none.
func (k keyFiles) read(file string) string {
	key, err := pki.LoadPublic(filepath.Join(k.dir, file))
	if err != nil {
		return ""
	}
	return key.SHA256()
}
