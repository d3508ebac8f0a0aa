package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// grains are the facts of this machine: collected at the start, without holding
// it up, and anew when asked.
type grains struct {
	cfg     *config.Minion
	custom  *extension.Set
	version string
	once    sync.Once
	done    chan struct{}
	mu      sync.RWMutex
	facts   map[string]any
	err     error // what could not be found out
}

func newGrains(cfg *config.Minion, version string, log *slog.Logger) *grains {
	g := &grains{cfg: cfg, custom: extension.OfMinion(extension.Grains, cfg.ModuleDirs, cfg.CacheDir, log), version: version, done: make(chan struct{})}
	go g.collect(context.Background()) // bounded by package grain
	return g
}

func (g *grains) collect(ctx context.Context) {
	custom := g.custom.Collect(ctx, extension.Request{ID: g.cfg.ID, Options: g.cfg.Raw}, extension.Env{ConfigDir: g.cfg.ConfigDir})
	facts, err := grain.Collect(ctx, grain.Options{
		ID: g.cfg.ID, Custom: custom, ConfigGrains: g.cfg.Grains, GrainsFile: filepath.Join(g.cfg.ConfigDir, "grains"), Version: g.version, Master: firstOf(g.cfg.Master),
	})
	g.mu.Lock()
	g.facts, g.err = facts, err
	g.mu.Unlock()
	g.once.Do(func() { close(g.done) })
}

// get waits for the first collection. The map must not be changed.
func (g *grains) get(ctx context.Context) (map[string]any, error) {
	select {
	case <-g.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.facts, g.err
}

// now returns what is known by now.
func (g *grains) now() map[string]any {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.facts
}

func firstOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

func (m *Minion) refreshGrains(ctx context.Context) error {
	m.grains.collect(ctx)
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	facts, err := m.grains.get(ctx)
	told := m.masters.Each(func(s *upstream.Session) error {
		return s.Ask(ctx, protocol.OpGrains, protocol.Hello{Grains: value.Value{V: facts}, Version: m.version}, nil)
	})
	if errors.Is(told, upstream.ErrNoMaster) {
		told = nil // hello will tell them
	}
	return errors.Join(err, told)
}

// host is this minion as functions see it.
func (m *Minion) host() *function.Host { return m.hostOver(nil) }

// hostFor is this minion as functions see it that are run for the master of the uplink:
// with its pillar and its mine.
func (m *Minion) hostFor(u *upstream.Uplink) *function.Host {
	h := m.hostOver(u)
	h.Pillar, h.PillarErrors = u.Pillar, u.PillarErrors
	return h
}

// hostOver is this minion as functions see it that reach masters over an uplink first,
// over any for nil.
func (m *Minion) hostOver(u *upstream.Uplink) *function.Host {
	reach, conn := m.peers(u), func() *rpc.Conn { return m.masters.Conn(u, "") }
	return &function.Host{
		ID: m.id, Version: m.version, Config: m.inForce(), Grains: m.grains.now, Pillar: m.masters.Pillar, PillarErrors: m.masters.PillarErrors, Paths: m.paths(), Custom: m.modules, Log: m.log, Publisher: reach,
		Services: &module.Services{
			Events: events{m}, Facts: facts{m}, Files: m.files(u), Jobs: m.jobs, Keys: keys{m, u}, Master: masterLink{m}, Mine: reach, Scheduler: m.schedule, Beacons: m.beacons,
			Returners: func() []string { return returner.Names(m.custom) }, Push: peer.Push(conn), Revoke: peer.Revocation(func() *rpc.Conn { return m.masters.Conn(nil, "") }),
		},
	}
}

func (m *Minion) paths() function.Paths {
	return function.Paths{ConfigDir: m.cfg.ConfigDir, PKIDir: m.cfg.PKIDir, PIDFile: m.cfg.PIDFile, GrainsFile: filepath.Join(m.cfg.ConfigDir, "grains"), CacheDir: m.cfg.CacheDir}
}

// facts implements module.Refresher.
type facts struct{ m *Minion }

// RefreshGrains implements module.Refresher.
func (f facts) RefreshGrains(ctx context.Context) error { return f.m.refreshGrains(ctx) }

// RefreshPillar implements module.Refresher.
func (f facts) RefreshPillar(ctx context.Context) error { return f.m.masters.RefreshPillar(ctx) }

// keys implements module.Keys: the minion's own, and that of the master of the uplink, or
// for nil of the first there is.
type keys struct {
	m *Minion
	u *upstream.Uplink
}

// Fingerprint implements module.Keys.
func (k keys) Fingerprint() string { return k.m.key.Public().SHA256() }

// MasterFingerprint implements module.Keys.
func (k keys) MasterFingerprint() string {
	s := k.m.masters.Session()
	if k.u != nil {
		if own := k.u.Session(); own != nil {
			s = own
		}
	}
	if s == nil {
		return ""
	}
	return s.Master.SHA256()
}

// events implements module.EventBus.
type events struct{ m *Minion }

// Fire implements module.EventBus.
func (e events) Fire(ctx context.Context, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return fmt.Errorf("event %q: %w", tag, err)
	}
	_, err = e.m.fireLocal(ctx, protocol.Fire{Events: []protocol.FireEvent{{Tag: tag, Data: raw}}}, local{check: event.CheckTag})
	return refusedByMaster(err)
}

// FireMaster implements module.EventBus.
func (e events) FireMaster(ctx context.Context, list ...module.Event) (module.Outcomes, error) {
	outcomes := module.Outcomes{}
	for _, one := range list {
		f, err := single(one)
		if err != nil {
			return nil, err
		}
		fired, err := e.m.fireMaster(ctx, f, "")
		if err != nil {
			return nil, refusedByMaster(err)
		}
		for _, m := range fired.Masters {
			outcomes.Add(m.Master, m.Outcome == protocol.Stored)
		}
	}
	return outcomes, nil
}

// refusedByMaster marks what is not permitted for package function, which does not
// know the bus.
func refusedByMaster(err error) error {
	if rpc.CodeOf(err) == rpc.Denied {
		return fmt.Errorf("%w: %w", function.ErrRefused, err)
	}
	return err
}

// single is one event in Salt's single form.
func single(e module.Event) (protocol.Fire, error) {
	data, err := value.Encode(e.Data)
	if err != nil {
		return protocol.Fire{}, fmt.Errorf("event %q: %w", e.Tag, err)
	}
	f := protocol.Fire{Form: protocol.FormSingle, Events: []protocol.FireEvent{{Tag: e.Tag, Data: data}}}
	if e.Pretag != "" {
		f.Pretag = &e.Pretag
	}
	return f, nil
}

// files are those of a master, of preferred while it lasts, or of this machine with file_client local.
func (m *Minion) files(preferred *upstream.Uplink) *fileserver.Cache {
	var source fileserver.Source = peer.Files{Conn: func() *rpc.Conn { return m.masters.Conn(preferred, "") }}
	if m.cfg.FileClient == "local" {
		source = fileserver.NewRoots(m.cfg.FileRoots)
	}
	return fileserver.NewCache(m.cfg.CacheDir, source)
}

// masterLink implements module.MasterLink.
type masterLink struct{ m *Minion }

// Masters implements module.MasterLink.
func (l masterLink) Masters() []string {
	var names []string
	for _, u := range l.m.masters.All() {
		if s := u.Session(); s != nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// Ping implements module.MasterLink.
func (l masterLink) Ping(ctx context.Context, master string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, u := range l.m.masters.All() {
		if s := u.Session(); s != nil && (master == "" || s.Name == master) {
			return s.NC.FlushWithContext(ctx)
		}
	}
	return upstream.ErrNoMaster
}
