// Package host is a minion as functions see it: its facts, configuration and pillar, the
// files of its master, the events that it fires, and the ways to its masters and to other
// minions. It puts together what package function hands to a function.
//
// Which functions there are, and what they need, is for package module.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/forwarder"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// answerTime bounds how long a master may take for one request.
const answerTime = 10 * time.Second

// Options are what a host is made with. All are required.
type Options struct {
	Config    *config.Minion
	InForce   func() map[string]any // the configuration by Salt's names, as it is now
	Version   string
	Key       string // the fingerprint of the minion's own
	Facts     *Facts
	Forwarder *forwarder.Forwarder
	Masters   *upstream.Uplinks
	Log       *slog.Logger
}

// Host is a minion. It implements executor.Host and, with its daemon's parts, what
// functions need. It is safe for concurrent use.
type Host struct {
	Options
	modules   *extension.Set // that people have added
	returners *extension.Set // likewise
	parts     Parts
}

// Parts are those of the daemon that functions show and change.
type Parts struct {
	Jobs      module.JobTable
	Scheduler module.Scheduler
	Beacons   module.Beacons
}

// New makes a host, for Serve.
func New(o Options) *Host {
	c := o.Config
	return &Host{
		Options: o, modules: extension.OfMinion(extension.Modules, c.ModuleDirs, c.CacheDir, o.Log),
		returners: extension.OfMinion(extension.Returners, c.ModuleDirs, c.CacheDir, o.Log),
	}
}

// Serve gives functions the parts of the daemon, before the first of them runs.
func (h *Host) Serve(p Parts) { h.parts = p }

// Facts are the grains, once they were collected. They must not be changed.
func (h *Host) Facts(ctx context.Context) (map[string]any, error) { return h.Options.Facts.get(ctx) }

// Grains are the grains that are known by now. They must not be changed.
func (h *Host) Grains() map[string]any { return h.Options.Facts.now() }

// RefreshGrains implements module.Refresher.
func (h *Host) RefreshGrains(ctx context.Context) error {
	h.Options.Facts.collect(ctx)
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	facts, err := h.Facts(ctx)
	failed := h.Masters.Each(func(s *upstream.Session) error {
		return s.Ask(ctx, protocol.OpGrains, protocol.Hello{Grains: value.Value{V: facts}, Version: h.Version}, nil)
	})
	if errors.Is(failed, upstream.ErrNoMaster) {
		failed = nil // hello will tell them
	}
	return errors.Join(err, failed)
}

// RefreshPillar implements module.Refresher.
func (h *Host) RefreshPillar(ctx context.Context) error { return h.Masters.RefreshPillar(ctx) }

// ForJob is this minion as the functions of a job see it that came over an uplink, nil for
// one of the schedule: with the pillar and the mine of that master. A job that another
// minion has published cannot publish: two minions would keep each other busy for ever.
// Programs that it starts are told, for the sake of salt-call.
func (h *Host) ForJob(e *job.Envelope, u *upstream.Uplink) *function.Host {
	f := h.over(u)
	if u != nil {
		f.Data = data{h, u}
	}
	if u != nil && !e.Reach.Free {
		f.Publisher = h.peersOf(u)
	}
	f.User = e.User
	if e.From != "" {
		f.Publisher, f.Environ = peer.Published{By: e.From}, []string{peer.PublishedBy + "=" + e.From}
	}
	return f
}

// over is this minion as functions see it that reach masters over an uplink first,
// over any for nil.
func (h *Host) over(u *upstream.Uplink) *function.Host {
	c, reach, conn := h.Config, h.peers(u), func() *rpc.Conn { return h.Masters.Conn(u, "") }
	return &function.Host{
		ID: c.ID, Version: h.Version, Config: h.InForce(), Data: data{h, h.Masters}, Custom: h.modules, Log: h.Log, Publisher: reach,
		Paths: function.Paths{ConfigDir: c.ConfigDir, PKIDir: c.PKIDir, PIDFile: c.PIDFile, GrainsFile: grainsFile(c), CacheDir: c.CacheDir},
		Services: &module.Services{
			Events: events{h.Forwarder}, Facts: h, Files: h.files(conn), Jobs: h.parts.Jobs, Keys: keys{h, u}, Master: masterLink{h.Masters}, Mine: reach, Scheduler: h.parts.Scheduler, Beacons: h.parts.Beacons,
			Returners: func() []string { return returner.Names(h.returners) }, Push: peer.Push(conn), Revoke: peer.Revocation(func() *rpc.Conn { return h.Masters.Conn(nil, "") }),
		},
	}
}

// data implements function.Data: the facts of the minion, and what a master has given it.
type data struct {
	h *Host
	pillar
}

// pillar is that of one master, or of whichever is there.
type pillar interface {
	Pillar() map[string]any
	PillarErrors() []string
}

// Grains implements function.Data.
func (d data) Grains() map[string]any { return d.h.Grains() }

func grainsFile(c *config.Minion) string { return filepath.Join(c.ConfigDir, "grains") }

// peers reaches other minions, and the mine, over a connection to a master: that of
// preferred while it lasts, else the first there is.
func (h *Host) peers(preferred *upstream.Uplink) peer.Client {
	return peer.Client{Conn: func(master string) *rpc.Conn { return h.Masters.Conn(preferred, master) }}
}

// peersOf reaches other minions over the master of an uplink and no other, unless one
// is named: it has decided about what the job publishes.
func (h *Host) peersOf(u *upstream.Uplink) peer.Client {
	return peer.Client{Conn: func(master string) *rpc.Conn {
		if master != "" {
			return h.Masters.Conn(u, master)
		}
		if s := u.Session(); s != nil {
			return s.Conn
		}
		return nil
	}}
}

// files are those of a master, or of this machine with file_client local.
func (h *Host) files(conn func() *rpc.Conn) *fileserver.Cache {
	var source fileserver.Source = peer.Files{Conn: conn}
	if h.Config.FileClient == "local" {
		source = fileserver.NewRoots(h.Config.FileRoots)
	}
	return fileserver.NewCache(h.Config.CacheDir, source)
}

// Returners makes ready what takes the returns of a job beside the master: those of
// the configuration and those of its caller.
func (h *Host) Returners(names string, o returner.Options) (returner.Set, error) {
	return returner.Open(append(append([]string{}, h.Config.Return...), names), o, &returner.Host{
		ID: h.Config.ID, Config: h.InForce(), Fire: h.Forwarder.FireReturn, Log: h.Log, Custom: h.returners, ConfigDir: h.Config.ConfigDir,
	})
}

// CheckReturners refuses a setting return that names what cannot take returns here.
func (h *Host) CheckReturners() error {
	if _, err := h.Returners("", returner.Options{}); err != nil {
		return config.Mistake(fmt.Errorf("setting return: %w", err))
	}
	return nil
}

// Lint returns what is strange about a configuration and no mistake: a module that is
// disabled, or let in, under a name that no module has. Somebody may add one later.
func Lint(cfg *config.Minion) []config.Place {
	var list []config.Place
	look := func(key, text string, names []string) {
		for _, name := range names {
			if !function.KnownModule(module.Builtin(), name) {
				list = append(list, config.Place{Key: key, Text: fmt.Sprintf("there is no module %q%s", name, text)})
			}
		}
	}
	look("disable_modules", ": nothing is disabled by it", cfg.DisableModules)
	look("whitelist_modules", "", cfg.WhitelistModules)
	return list
}
