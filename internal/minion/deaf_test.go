package minion

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// TestADeafMinionEnds: the connection through which a minion serves its own bus is gone.
func TestADeafMinionEnds(t *testing.T) {
	bustest.CheckLeaks(t)
	dir := t.TempDir()
	text := "root_dir: " + dir + "\nid: web1\nmaster_type: disable\n"
	if err := os.WriteFile(filepath.Join(dir, "minion"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.LoadMinion(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	m, err := New(t.Context(), Options{Config: cfg, Version: "test", Log: log, SelfCheck: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(t.Context()) }()
	c, err := rpc.Dial(filepath.Join(cfg.SockDir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m.broker.Conn().Close()
	select {
	case err := <-ended:
		if !errors.Is(err, broker.ErrFailed) { // of which the bus tells at once, and a check of itself later
			t.Errorf("the minion ends with %v, want %v", err, broker.ErrFailed)
		}
	case <-time.After(time.Minute):
		t.Fatal("the minion runs on, and does not serve")
	}
}
