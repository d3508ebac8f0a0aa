package minion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/beacon"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/schedule"
	"github.com/brinebus/brine/internal/value"
)

// beacons are those of this minion. It implements module.Beacons.
type beacons struct {
	m      *Minion
	engine *beacon.Engine
	file   string // of what functions have saved, beside the drop-ins of the configuration

	mu  sync.Mutex
	set map[string]any // what the configuration says
	now map[string]any // with what functions have changed
}

func openBeacons(m *Minion) (*beacons, error) {
	b := &beacons{m: m}
	b.engine = beacon.NewEngine(b.fire, m.log)
	if in := m.cfg.DefaultInclude; in != "" {
		b.file = filepath.Join(m.cfg.ConfigDir, filepath.Dir(in), config.BeaconChanges)
	}
	return b, b.take(m.cfg)
}

// take puts the beacons of a configuration in force, with what functions have saved.
func (b *beacons) take(cfg *config.Minion) error {
	set, err := configuredBeacons(cfg)
	if err != nil {
		return err
	}
	saved, err := readSaved(b.file)
	if err != nil {
		return err
	}
	now := schedule.Changed(set, saved)
	list, err := beacon.Parse(now)
	if err != nil {
		return fmt.Errorf("%s: %w", b.file, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set, b.now = set, now
	b.engine.Set(list)
	return nil
}

// configuredBeacons reads the setting beacons; its mistakes have the place in the file.
func configuredBeacons(cfg *config.Minion) (map[string]any, error) {
	v := cfg.Beacons.Value()
	if _, err := beacon.Parse(v); err != nil {
		return nil, cfg.Beacons.At(nil, err)
	}
	set, _ := v.(map[string]any)
	return set, nil
}

// readSaved reads what functions have saved; a missing file is nothing.
func readSaved(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	rules, err := config.ReadRules(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	file, _ := rules.Value().(map[string]any)
	saved, ok := file["beacons"].(map[string]any)
	if !ok && file["beacons"] != nil {
		return nil, rules.At(nil, errors.New("beacons is no dictionary"))
	}
	return saved, nil
}

// fire puts what a beacon has seen on the minion's own bus and, by the outbox, on the
// master's, with Salt's tags.
func (b *beacons) fire(ctx context.Context, name string, seen []beacon.Event) error {
	var q protocol.Fire
	for _, e := range seen {
		data := maps.Clone(e.Data)
		data["id"], data["beacon_name"] = string(b.m.id), name
		raw, err := value.Encode(data)
		if err != nil {
			return err
		}
		q.Events = append(q.Events, protocol.FireEvent{Tag: "salt/beacon/" + string(b.m.id) + "/" + name + "/" + e.Tag, Data: raw})
	}
	if _, err := b.m.events.Put(ctx, q, ""); err != nil {
		return err
	}
	if len(b.m.boxes) == 0 {
		return nil
	}
	if err := b.m.checkOutgoing(q); err != nil {
		return err
	}
	return b.m.boxes.Put(ctx, outbox.Outgoing{Op: protocol.OpFire, Body: q, Events: len(q.Events)})
}

// Beacons implements module.Beacons.
func (b *beacons) Beacons() map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.now)
}

// SetBeacons implements module.Beacons. A beacon that runs a program comes from the
// configuration alone: what it would run is for whoever may run programs.
func (b *beacons) SetBeacons(now map[string]any) error {
	list, err := beacon.Parse(now)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before, err := beacon.Parse(b.now)
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
	b.now = now
	b.engine.Set(list)
	return nil
}

// SaveBeacons implements module.Beacons: in what the beacons differ from the configuration.
func (b *beacons) SaveBeacons() (path string, err error) {
	if b.file == "" {
		return "", errors.New("default_include is empty: there is no folder for what functions change")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	text, err := config.DropIn("beacons", schedule.Changes(b.set, b.now))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(b.file), 0o755); err != nil {
		return "", err
	}
	const head = "# Written by beacons.save: what functions have changed. A beacon that is null was deleted.\n"
	return b.file, atomicfile.Write(b.file, []byte(head+text), 0o600)
}

// ResetBeacons implements module.Beacons: what functions have changed is forgotten, what they
// have saved too.
func (b *beacons) ResetBeacons() error {
	if b.file != "" {
		if err := os.Remove(b.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	list, err := beacon.Parse(b.set)
	if err == nil {
		b.now = maps.Clone(b.set)
		b.engine.Set(list)
	}
	return err
}
