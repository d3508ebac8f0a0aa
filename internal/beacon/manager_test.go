package beacon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/config"
)

// TestChangesOfBeaconsAtOnce: several jobs of a master change the beacons of a minion at the same time. None
// undoes the change of another one.
func TestChangesOfBeaconsAtOnce(t *testing.T) {
	t.Parallel()
	cfg := &config.Minion{}
	cfg.ConfigDir, cfg.CacheDir, cfg.DefaultInclude = t.TempDir(), t.TempDir(), "minion.d/*.conf"
	m, err := NewManager(cfg, func(context.Context, string, []Event) error { return nil }, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const many = 20
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			_, err := m.ChangeBeacons(func(all map[string]any) string {
				runtime.Gosched()
				all[fmt.Sprint("load", i)] = map[string]any{"beacon_module": "load", "averages": map[string]any{"1m": []any{0.0, 8.0}}, "enabled": false}
				return ""
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(m.Beacons()); n != many {
		t.Errorf("%d beacons of %d are in force", n, many)
	}
	why, err := m.ChangeBeacons(func(all map[string]any) string { clear(all); return "no" })
	if n := len(m.Beacons()); why != "no" || err != nil || n != many {
		t.Errorf("a change that cannot be made: %q, %v; %d beacons are left", why, err, n)
	}
}

// TestOtherBeaconsGoOn: a change of one beacon, or SIGHUP, takes nothing from another one: it knows what it has
// seen. What functions have changed stays, also if it was not saved, unless the configuration of it was edited.
func TestOtherBeaconsGoOn(t *testing.T) {
	dir := t.TempDir()
	file, configuration := filepath.Join(dir, "log"), filepath.Join(dir, "beacons")
	write(t, file, "error: old\n", 0)
	read := func(limit int) *config.Minion {
		t.Helper()
		cfg := &config.Minion{}
		cfg.ConfigDir, cfg.CacheDir, cfg.DefaultInclude = dir, t.TempDir(), "minion.d/*.conf"
		write(t, configuration, fmt.Sprintf("lines: {beacon_module: log, file: %s, tags: {fail: {regex: ^error}}}\nload: {averages: {1m: [0, %d]}}\n", file, limit), os.O_TRUNC)
		var err error
		if cfg.Beacons, err = config.ReadRules(configuration); err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	m, err := NewManager(read(5), func(context.Context, string, []Event) error { return nil }, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	lines := func(want int) {
		t.Helper()
		m.engine.mu.Lock()
		defer m.engine.mu.Unlock()
		for _, w := range m.engine.running {
			if w.Name == "lines" {
				if events := look(t, w.Beacon); len(events) != want {
					t.Errorf("%v, want %d lines", events, want)
				}
				return
			}
		}
		t.Error("the beacon is not there")
	}
	change := func(name string, v any) {
		t.Helper()
		if _, err := m.ChangeBeacons(func(all map[string]any) string { all[name] = v; return "" }); err != nil {
			t.Fatal(err)
		}
	}
	memory := dict{"percent": int64(90)}
	also := func() error { return nil }
	lines(0)
	write(t, file, "error: one\n", os.O_APPEND)
	change("memusage", memory)
	change("load", dict{"averages": dict{"1m": []any{int64(0), int64(7)}}})
	lines(1)
	write(t, file, "error: two\n", os.O_APPEND)
	if err := m.Take(read(5), also); err != nil {
		t.Fatal(err)
	}
	lines(1)
	limit := func() any { return m.Beacons()["load"].(dict)["averages"].(dict)["1m"].([]any)[1] }
	if now := m.Beacons(); !reflect.DeepEqual(now["memusage"], any(memory)) || limit() != int64(7) {
		t.Errorf("after SIGHUP %v are in force", now)
	}
	if err := m.Take(read(6), also); err != nil {
		t.Fatal(err)
	}
	if now := m.Beacons(); now["memusage"] == nil || limit() != int64(6) {
		t.Errorf("after an edit %v are in force", now)
	}
	change("enabled", false)
	write(t, file, "error: three\n", os.O_APPEND)
	change("enabled", true)
	lines(0) // one that was disabled begins anew
}

// TestABeaconWithoutSettingsIsSaved: one that was added or changed is there after a restart, although null is one that
// was deleted in the file of the changes. One that is so in the configuration is no change.
func TestABeaconWithoutSettingsIsSaved(t *testing.T) {
	for name, c := range map[string]struct {
		configured string
		change     string
		saved      bool
	}{
		"added":      {"{}\n", "status", true},
		"changed":    {"status: [{loadavg: [1-min]}]\n", "status", true},
		"configured": {"status:\n", "memusage", false},
	} {
		dir := t.TempDir()
		cfg := &config.Minion{}
		cfg.ConfigDir, cfg.CacheDir, cfg.DefaultInclude = dir, t.TempDir(), "minion.d/*.conf"
		write(t, filepath.Join(dir, "beacons"), c.configured, 0)
		var err error
		if cfg.Beacons, err = config.ReadRules(filepath.Join(dir, "beacons")); err != nil {
			t.Fatal(err)
		}
		open := func() *Manager {
			t.Helper()
			m, err := NewManager(cfg, func(context.Context, string, []Event) error { return nil }, nil, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		m := open()
		_, err = m.ChangeBeacons(func(all map[string]any) string {
			all[c.change] = map[string]any{"status": nil, "memusage": dict{"percent": int64(90)}}[c.change]
			return ""
		})
		if err == nil {
			_, err = m.SaveBeacons()
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(m.file.Path)
		if err != nil || strings.Contains(string(text), "status:") != c.saved {
			t.Errorf("%s: saved is %q, %v", name, text, err)
		}
		now := open().Beacons()
		if v, there := now["status"]; !there || v != nil && !reflect.DeepEqual(v, []any{}) {
			t.Errorf("%s: after a restart there are %v", name, now)
		}
	}
}

// TestAConfigurationIsTakenAsAWhole: with beacons that are wrong the rest of a configuration is not taken, nor are
// beacons without the rest.
func TestAConfigurationIsTakenAsAWhole(t *testing.T) {
	dir := t.TempDir()
	read := func(limit int) *config.Minion {
		t.Helper()
		cfg := &config.Minion{}
		cfg.ConfigDir, cfg.CacheDir, cfg.DefaultInclude = dir, t.TempDir(), "minion.d/*.conf"
		write(t, filepath.Join(dir, "beacons"), fmt.Sprintf("load: {averages: {1m: [0, %d]}}\n", limit), os.O_TRUNC)
		var err error
		if cfg.Beacons, err = config.ReadRules(filepath.Join(dir, "beacons")); err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	m, err := NewManager(read(5), func(context.Context, string, []Event) error { return nil }, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	limit := func() any { return m.Beacons()["load"].(dict)["averages"].(dict)["1m"].([]any)[1] }
	wrong := errors.New("the schedule is wrong")
	if err := m.Take(read(6), func() error { return wrong }); !errors.Is(err, wrong) || limit() != int64(5) {
		t.Errorf("with a wrong schedule: %v, and the limit is %v", err, limit())
	}
	if err := os.MkdirAll(filepath.Dir(m.file.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, m.file.Path, "load: [", os.O_TRUNC)
	taken := false
	if err := m.Take(read(7), func() error { taken = true; return nil }); err == nil || taken || limit() != int64(5) {
		t.Errorf("with wrong changes of beacons: %v, the rest was taken: %t, and the limit is %v", err, taken, limit())
	}
}
