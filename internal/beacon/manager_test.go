package beacon

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
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
