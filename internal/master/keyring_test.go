package master

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"brine/internal/bustest"
	"brine/internal/config"
	"brine/internal/pki"
	"brine/internal/salt"
)

// TestAnAcceptedMinionStaysATarget: a look at the store that began before a key was
// accepted, and ends after that, does not take its minion away again.
func TestAnAcceptedMinionStaysATarget(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir, cfg.AutoAccept = t.TempDir(), true
	k, err := openKeyring(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := k.refresh(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	key := bustest.Key(t).Public()
	var accepted []salt.MinionID
	for i := range 100 {
		id := salt.MinionID(fmt.Sprintf("m%03d", i))
		if v, err := k.admit(id, key, "127.0.0.1"); err != nil || v.state != pki.Accepted {
			t.Fatalf("%s: %+v, %v", id, v, err)
		}
		accepted = append(accepted, id)
		for range 50 {
			if ids := k.ids(); !slices.Equal(ids, accepted) {
				t.Fatalf("%d minions are targets after %d were accepted", len(ids), len(accepted))
			}
		}
	}
}
