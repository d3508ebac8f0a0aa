package route

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/version"
)

// Fire puts an event on the master's bus, as it is.
type Fire func(ctx context.Context, tag string, data any) error

// Host is this minion as functions see it in this process, over a route. Fire is nil where
// that leads to no master.
func Host(cfg *config.Minion, r Route, getenv func(string) string, log *slog.Logger) (*function.Host, Fire) {
	h, s := newHost(cfg, log)
	r.complete(h, s)
	if by := getenv(peer.PublishedBy); by != "" { // the job of another minion has started this process
		h.Publisher = peer.Published{By: by}
	}
	if to, ok := s.Events.(events); ok {
		return h, to.fireReturn
	}
	return h, nil
}

// newHost is this machine without any bus. Facts are collected, and files read, when
// a function first asks for them: most never do.
func newHost(cfg *config.Minion, log *slog.Logger) (*function.Host, *module.Services) {
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
	services := &module.Services{
		Facts: ownFacts{}, Files: fileserver.NewCache(cfg.CacheDir, fileserver.NewRoots(cfg.FileRoots)), Keys: keyFiles{cfg.PKIDir},
		Returners: func() []string { return returner.Names(custom) },
	}
	return &function.Host{
		ID: cfg.ID, Version: version.Version(), Config: cfg.Raw, Grains: sync.OnceValue(collect), Custom: modules, Log: log,
		Paths:    function.Paths{ConfigDir: cfg.ConfigDir, PKIDir: cfg.PKIDir, PIDFile: cfg.PIDFile, GrainsFile: file, CacheDir: cfg.CacheDir},
		Services: services,
	}, services
}

// ownFacts implements module.Refresher: the facts of a call are its own, and nobody keeps them.
type ownFacts struct{}

// RefreshGrains implements module.Refresher.
func (ownFacts) RefreshGrains(context.Context) error { return nil }

// RefreshPillar implements module.Refresher.
func (ownFacts) RefreshPillar(context.Context) error { return nil }

// keyFiles implements module.Keys over a directory, whose files are read when they are
// asked for.
type keyFiles struct{ dir string }

// Fingerprint implements module.Keys.
func (k keyFiles) Fingerprint() string { return k.read("minion.pub") }

// MasterFingerprint implements module.Keys.
func (k keyFiles) MasterFingerprint() string { return k.read("minion_master.pub") }

// read is the fingerprint of a public key; "" for none.
func (k keyFiles) read(file string) string {
	key, err := pki.LoadPublic(filepath.Join(k.dir, file))
	if err != nil {
		return ""
	}
	return key.SHA256()
}
