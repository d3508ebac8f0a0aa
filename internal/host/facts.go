package host

import (
	"context"
	"log/slog"
	"sync"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/grain"
)

// Facts are the grains of this machine: collected after the start, without delaying it, and
// again on request.
type Facts struct {
	cfg     *config.Minion
	custom  *extension.Set
	version string
	once    sync.Once
	done    chan struct{}
	mu      sync.RWMutex
	facts   map[string]any
	err     error // what could not be determined
}

// Collect starts to collect the facts of this machine.
func Collect(cfg *config.Minion, version string, log *slog.Logger) *Facts {
	f := &Facts{cfg: cfg, custom: extension.OfMinion(extension.Grains, cfg.ModuleDirs, cfg.CacheDir, log), version: version, done: make(chan struct{})}
	go f.collect(context.Background()) // package grain limits the time
	return f
}

func (f *Facts) collect(ctx context.Context) {
	custom := f.custom.Collect(ctx, extension.Request{ID: f.cfg.ID, Options: f.cfg.Raw}, extension.Env{ConfigDir: f.cfg.ConfigDir})
	facts, err := grain.Collect(ctx, grain.Options{
		ID: f.cfg.ID, Custom: custom, ConfigGrains: f.cfg.Grains, GrainsFile: grainsFile(f.cfg), Version: f.version, Master: firstOf(f.cfg.Master),
		Blacklist: f.cfg.GrainsBlacklist,
	})
	f.mu.Lock()
	f.facts, f.err = facts, err
	f.mu.Unlock()
	f.once.Do(func() { close(f.done) })
}

// get waits for the first collection. The map must not be changed.
func (f *Facts) get(ctx context.Context) (map[string]any, error) {
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.facts, f.err
}

// now returns what is known so far.
func (f *Facts) now() map[string]any {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.facts
}

func firstOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
