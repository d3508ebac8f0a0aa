package runner

import (
	"context"
	"log/slog"
	"testing"

	"github.com/brinebus/brine/test/capture"
)

// TestMachine: the master's machine has its own facts, collected when a function wants them, and
// nothing of a minion. What is missing is in the log.
func TestMachine(t *testing.T) {
	var out capture.Buffer
	m := Machine{Version: "1.2", CacheDir: "/var/cache/x", Log: slog.New(slog.NewTextHandler(&out, nil))}
	h := m.Host(t.Context(), map[string]any{"interface": "::"})
	if h.Facts()["kernel"] == nil || h.Version != "1.2" || h.CacheDir != "/var/cache/x" || h.Config["interface"] != "::" {
		t.Errorf("the machine is %+v, its facts %v", h, h.Facts())
	}
	if h.ID != "" || h.Services != nil || len(h.PillarData()) > 0 {
		t.Errorf("the machine has parts of a minion: %+v", h)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	h = m.Host(ended, nil)
	if out.String() != "" {
		t.Errorf("facts are collected before they are wanted: %s", out.String())
	}
	if h.Facts(); out.String() == "" {
		t.Error("nobody says that facts are missing")
	}
}
