package master

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// TestADeafMasterEnds breaks what a master needs in order to serve: it must not run on.
func TestADeafMasterEnds(t *testing.T) {
	for name, c := range map[string]struct {
		destroy func(*testing.T, *Master)
		every   time.Duration // between two checks of itself
		want    error
	}{
		"its own connection": {func(_ *testing.T, m *Master) { m.broker.Conn().Close() }, time.Hour, broker.ErrFailed}, // of which the bus tells at once
		"its journal":        {func(t *testing.T, m *Master) { destroyStreams(t, m, "") }, 300 * time.Millisecond, daemon.ErrDeaf},
		"writing":            {func(t *testing.T, m *Master) { destroyStreams(t, m, "KV_self") }, 300 * time.Millisecond, daemon.ErrDeaf},
	} {
		t.Run(name, func(t *testing.T) {
			bustest.CheckLeaks(t)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "master"), []byte("root_dir: "+dir+"\ninterface: 127.0.0.1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, _, err := config.LoadMaster(dir)
			if err != nil {
				t.Fatal(err)
			}
			cfg.RetPort = 0
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			m, err := New(t.Context(), Options{Config: cfg, Version: "test", Log: log, SelfCheck: c.every})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- m.Run(t.Context()) }()
			deadline.Receive(t, m.serving, "serving")
			c.destroy(t, m)
			select {
			case err := <-ended:
				if !errors.Is(err, c.want) {
					t.Errorf("the master ends with %v, want %v", err, c.want)
				}
			case <-time.After(time.Minute):
				t.Fatal("the master runs on, and does not serve")
			}
		})
	}
}

// destroyStreams takes the store away from under the journal: all of it, or that alone
// which the master writes to see whether it can, when it has done so. Before, it would make it
// again.
func destroyStreams(t *testing.T, m *Master, only string) {
	t.Helper()
	ask := func(subject string) []byte {
		answer, err := m.broker.Conn().Request(subject, nil, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Data
	}
	written := func(stream string) bool {
		var info struct{ State struct{ Messages int } }
		if err := json.Unmarshal(ask("$JS.API.STREAM.INFO."+stream), &info); err != nil {
			t.Fatal(err)
		}
		return info.State.Messages > 0
	}
	var names struct{ Streams []string }
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := json.Unmarshal(ask("$JS.API.STREAM.NAMES"), &names); err != nil {
			t.Fatal(err)
		}
		if len(names.Streams) > 0 && (only == "" || slices.Contains(names.Streams, only) && written(only)) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("there is no stream %q: %q", only, names.Streams)
		}
	}
	for _, name := range names.Streams {
		if only == "" || name == only {
			ask("$JS.API.STREAM.DELETE." + name)
		}
	}
}
