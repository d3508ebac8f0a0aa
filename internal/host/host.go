// Package host is a minion as functions see it: its facts, configuration and pillar, the files
// of its master, the events that it fires, and how to reach its masters and other minions. It
// assembles what package function passes to a function.
//
// Package module says which functions there are, and what they need.
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

// answerTime limits how long a master may take for one request.
const answerTime = 10 * time.Second

// Options are the settings of a Host. All are required.
type Options struct {
	Config    *config.Minion
	InForce   func() map[string]any // the present configuration, by Salt's names
	Version   string
	Key       string // fingerprint of the minion's own key
	Facts     *Facts
	Forwarder *forwarder.Forwarder
	Masters   *upstream.Uplinks
	Log       *slog.Logger
}

// Host is a minion. It implements executor.Host and, with the daemon's parts, what functions
// need. It is safe for concurrent use.
type Host struct {
	Options
	modules   *extension.Set // the site's own modules
	returners *extension.Set // the site's own returners
	abandoned returner.Abandoned
	parts     Parts
}

// Parts are the parts of the daemon that functions show and change.
type Parts struct {
	Jobs        module.JobTable
	Scheduler   module.Scheduler
	Beacons     module.Beacons
	BeaconKinds func() []string // what beacons can watch, sorted
}

// New returns a Host, for Serve.
func New(o Options) *Host {
	c := o.Config
	return &Host{
		Options: o, modules: extension.OfMinion(extension.Modules, c.ModuleDirs, c.CacheDir, o.Log),
		returners: extension.OfMinion(extension.Returners, c.ModuleDirs, c.CacheDir, o.Log),
	}
}

// Serve sets the parts of the daemon, before the first function runs.
func (h *Host) Serve(p Parts) { h.parts = p }

// Facts returns the grains, once they were collected. They must not be changed.
func (h *Host) Facts(ctx context.Context) (map[string]any, error) { return h.Options.Facts.get(ctx) }

// Grains returns the grains known so far. They must not be changed.
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
		failed = nil // hello will send them
	}
	return errors.Join(err, failed)
}

// RefreshPillar implements module.Refresher.
func (h *Host) RefreshPillar(ctx context.Context) error { return h.Masters.RefreshPillar(ctx) }

// ForJob returns this minion as the functions of a job see it: with the pillar and the mine of
// the master of u, the job's uplink, which is nil for one of the schedule. A job that another
// minion has published cannot publish: two minions would keep each other busy forever. Programs
// that it starts get an environment variable for salt-call.
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

// over returns this minion as functions see it, with u as the preferred uplink; nil for none.
func (h *Host) over(u *upstream.Uplink) *function.Host {
	c, reach, conn := h.Config, h.peers(u), func() *rpc.Conn { return h.Masters.Conn(u, "") }
	return &function.Host{
		ID: c.ID, Version: h.Version, Config: h.InForce(), Data: data{h, h.Masters}, Custom: h.modules, Log: h.Log, Publisher: reach,
		Paths: function.Paths{ConfigDir: c.ConfigDir, PKIDir: c.PKIDir, PIDFile: c.PIDFile, GrainsFile: grainsFile(c), CacheDir: c.CacheDir},
		Services: &module.Services{
			Events: events{h.Forwarder}, Facts: h, Files: h.files(conn), Jobs: h.parts.Jobs, Keys: keys{h, u}, Master: masterConnection{h.Masters}, Mine: reach, Scheduler: h.parts.Scheduler, Beacons: h.parts.Beacons, BeaconKinds: h.parts.BeaconKinds,
			Returners: func() []string { return returner.Names(h.returners) }, Push: peer.Push(conn), Revoke: peer.Revocation(func() *rpc.Conn { return h.Masters.Conn(nil, "") }),
		},
	}
}

// data implements function.Data: the facts of the minion, and what a master has given it.
type data struct {
	h *Host
	pillar
}

// pillar is that of one master, or of whichever is connected.
type pillar interface {
	Pillar() map[string]any
	PillarErrors() []string
}

// Grains implements function.Data.
func (d data) Grains() map[string]any { return d.h.Grains() }

func grainsFile(c *config.Minion) string { return filepath.Join(c.ConfigDir, "grains") }

// peers reaches other minions, and the mine, over a connection to a master: that of preferred
// if it is connected, otherwise the first one.
func (h *Host) peers(preferred *upstream.Uplink) peer.Client {
	return peer.Client{Conn: func(master string) *rpc.Conn { return h.Masters.Conn(preferred, master) }}
}

// peersOf reaches other minions only over the master of an uplink, unless one is named: that
// master has decided what the job may publish.
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

// files returns the files of a master, or with file_client local those of this machine.
func (h *Host) files(conn func() *rpc.Conn) *fileserver.Cache {
	var source fileserver.Source = peer.Files{Conn: conn}
	if h.Config.FileClient == "local" {
		source = fileserver.NewRoots(h.Config.FileRoots)
	}
	return fileserver.NewCache(h.Config.CacheDir, source)
}

// Returners prepares the returners of a job besides the master: those of the configuration and
// those of its caller.
func (h *Host) Returners(names string, o returner.Options) (returner.Set, error) {
	return returner.Open(append(append([]string{}, h.Config.Return...), names), o, &returner.Host{
		ID: h.Config.ID, Config: h.InForce(), Fire: h.Forwarder.FireReturn, Log: h.Log, Custom: h.returners, ConfigDir: h.Config.ConfigDir, Disabled: h.Config.DisableReturners,
		Abandoned: &h.abandoned,
	})
}

// CheckReturners returns an error if the setting return names something that cannot take
// returns here.
func (h *Host) CheckReturners() error {
	if _, err := h.Returners("", returner.Options{}); err != nil {
		return config.Mistake(fmt.Errorf("setting return: %w", err))
	}
	return nil
}

// Lint returns warnings about a valid configuration: a disabled or whitelisted module that does
// not exist. It may be added later.
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
