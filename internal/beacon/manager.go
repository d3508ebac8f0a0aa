package beacon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/override"
)

// Manager has the beacons of a minion: those of its configuration, with the changes by functions.
// It implements module.Beacons.
type Manager struct {
	engine *Engine
	status Status
	file   override.File
	log    *slog.Logger

	mu      sync.Mutex
	setting *override.Setting
	now     map[string]any // the active ones
}

const savedHead = "# Written by beacons.save: what functions have changed. A beacon that is null was deleted.\n"

// NewManager activates the beacons of a configuration, for Run. Their events go to fire, as in
// NewEngine.
func NewManager(cfg *config.Minion, fire func(ctx context.Context, name string, events []Event) error, status Status, log *slog.Logger) (*Manager, error) {
	m := &Manager{engine: NewEngine(fire, log), status: status, file: override.New(cfg, "beacons", config.BeaconChanges, savedHead), log: log}
	return m, m.Take(cfg, func() error { return nil })
}

// Run calls the beacons until ctx ends.
func (m *Manager) Run(ctx context.Context) { m.engine.Run(ctx) }

// Check checks the setting beacons of a configuration; an error has its position in the file.
func Check(l config.Located) error {
	if _, err := Parse(l.Value()); err != nil {
		return l.At(nil, err)
	}
	return nil
}

// Take activates the beacons of a configuration, with the changes that functions have made, also those that
// are not saved. Before that it calls also, when nothing of the beacons can fail any more. After an error, of also
// as well, the previous ones stay active.
func (m *Manager) Take(cfg *config.Minion, also func() error) error {
	if err := Check(cfg.Beacons); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	setting, err := m.file.Read(cfg.Beacons)
	if err != nil {
		return err
	}
	now := setting.After(m.setting, m.now)
	list, err := Parse(now)
	if err != nil {
		return fmt.Errorf("%s: %w", m.file.Path, err)
	}
	if err := also(); err != nil {
		return err
	}
	setting.TellShadowed(func(name, configuredAt, changes string) {
		m.log.Warn("this beacon of the configuration is not in force: functions of the module beacons have changed it", "beacon", name, "file", configuredAt, "changes", changes)
	})
	m.setting, m.now = setting, now
	m.set(list)
	return nil
}

func (m *Manager) set(list []Beacon) {
	for _, b := range list {
		if p, ok := b.Probe.(needsStatus); ok {
			p.useStatus(m.status)
		}
	}
	m.engine.Set(list)
}

// Beacons implements module.Beacons.
func (m *Manager) Beacons() map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.now)
}

// ChangeBeacons implements module.Beacons.
func (m *Manager) ChangeBeacons(change func(all map[string]any) string) (why string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.now)
	if all == nil {
		all = map[string]any{}
	}
	if why := change(all); why != "" {
		return why, nil
	}
	return "", m.replace(all)
}

// replace puts beacons in force. One that runs a program can come only from the configuration: otherwise users
// could run programs without the right to. The caller holds the lock.
func (m *Manager) replace(now map[string]any) error {
	for name, v := range now {
		if was, had := m.now[name]; v == nil && (!had || was != nil) {
			now[name] = []any{} // no settings: in the file of the changes null is a beacon that was deleted
		}
	}
	list, err := Parse(now)
	if err != nil {
		return err
	}
	before, err := Parse(m.now)
	if err != nil {
		return err
	}
	runs := map[string]string{}
	for _, one := range before {
		runs[one.Name] = one.Runs
	}
	for _, one := range list {
		if one.Runs != "" && runs[one.Name] != one.Runs {
			return fmt.Errorf("beacon %s runs a program: it is added in the configuration of the minion only", one.Name)
		}
	}
	m.now = now
	m.set(list)
	return nil
}

// SaveBeacons implements module.Beacons: it saves the differences from the configuration.
func (m *Manager) SaveBeacons() (path string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.file.Path, m.setting.Keep(m.now)
}

// ResetBeacons implements module.Beacons: it removes the changes by functions, also saved ones.
func (m *Manager) ResetBeacons() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.setting.Forget(); err != nil {
		return err
	}
	now := m.setting.Entries()
	list, err := Parse(now)
	if err == nil {
		m.now = now
		m.set(list)
	}
	return err
}
