package minion_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/port"
)

// signedMaster runs a master that signs its key with the pair in signDir.
func signedMaster(t *testing.T, signDir string) (*config.Master, net.Addr, *daemonUnderTest) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "master"), "root_dir: "+dir+"\ninterface: 127.0.0.1\nauto_accept: True\nmaster_sign_pubkey: True\n")
	cfg, _, err := config.LoadMaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RetPort = port.Free(t) // it may be started again there
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"master_sign.pem", "master_sign.pub"} {
		if b, err := os.ReadFile(filepath.Join(signDir, name)); err == nil {
			if err := os.WriteFile(filepath.Join(cfg.PKIDir, name), b, 0o400); err != nil {
				t.Fatal(err)
			}
		}
	}
	m, err := master.New(t.Context(), master.Options{Config: cfg, Version: "test", Log: logger(t, "master")})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, m.Addr(), run(t, m.Run)
}

// verifying is a minion with a list of masters that must sign.
func verifying(t *testing.T, signDir, settings string, masters ...net.Addr) *config.Minion {
	t.Helper()
	list := ""
	for _, m := range masters {
		list += ", '" + m.String() + "'"
	}
	cfg := minionConfig(t, masters[0], "verify_master_pubkey_sign: True\nmaster_type: failover\n"+settings)
	cfg.Master, cfg.MasterIsList = strings.Split(strings.ReplaceAll(strings.TrimPrefix(list, ", "), "'", ""), ", "), true
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(signDir, "master_sign.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(cfg.PKIDir, "master_sign.pub"), string(b))
	return cfg
}

// uses waits until the minion is connected to the master at address.
func uses(t *testing.T, cfg *config.Minion, address net.Addr) {
	t.Helper()
	c := dial(t, cfg.SockDir, minion.SocketName)
	until(t, "the minion uses "+address.String(), func() bool {
		var s protocol.Status
		return c.Ask(t.Context(), protocol.OpStatus, nil, &s) == nil && s.Connected && s.Master == address.String()
	})
}

func TestFailoverAndBack(t *testing.T) {
	first, a, firstRun := signedMaster(t, t.TempDir())
	_, b, _ := signedMaster(t, first.PKIDir)
	cfg := verifying(t, first.PKIDir, "master_failback: True\nmaster_failback_interval: 1\nmaster_alive_interval: 1\n", a, b)
	startMinion(t, cfg)
	uses(t, cfg, a)
	firstRun.stop()
	uses(t, cfg, b)
	first.RetPort = a.(*net.TCPAddr).Port
	again, err := master.New(t.Context(), master.Options{Config: first, Version: "test", Log: logger(t, "first again")})
	if err != nil {
		t.Fatal(err)
	}
	run(t, again.Run)
	uses(t, cfg, a)

	s, err := dial(t, cfg.SockDir, minion.SocketName).Call(protocol.OpListen, protocol.Listen{Tags: []string{"__master"}, Since: time.Now().Add(-time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ready protocol.Ready
	if err := s.Decode(ctx, &ready); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"__master_connected " + a.String(), "__master_disconnected " + a.String(), "__master_connected " + b.String(), "__master_failback " + a.String(), "__master_connected " + a.String()} {
		var e protocol.Heard
		if err := s.Decode(ctx, &e); err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		tag, address, _ := strings.Cut(want, " ")
		if e.Tag != tag || !strings.Contains(string(e.Data), address) {
			t.Errorf("event %s %s, want %s", e.Tag, e.Data, want)
		}
	}
}

func TestMasterWithAWrongSignatureIsPassedOver(t *testing.T) {
	good, b, _ := signedMaster(t, t.TempDir())
	_, a, _ := signedMaster(t, t.TempDir()) // signs with a pair of its own
	cfg := verifying(t, good.PKIDir, "", a, b)
	startMinion(t, cfg)
	uses(t, cfg, b)
}

func TestAllMastersRefused(t *testing.T) {
	good, _, _ := signedMaster(t, t.TempDir())
	_, a, _ := signedMaster(t, t.TempDir())
	_, b, _ := startMaster(t) // does not sign
	d := startMinion(t, verifying(t, good.PKIDir, "", a, b))
	select {
	case err := <-d.ended:
		if !errors.Is(err, upstream.ErrSignature) {
			t.Errorf("all masters refused: %v, want ErrSignature", err)
		}
	case <-time.After(time.Minute):
		t.Error("a minion that refuses all its masters goes on")
	}
}

func TestUnreachableMastersEndNothing(t *testing.T) {
	good, _, _ := signedMaster(t, t.TempDir())
	_, a, _ := signedMaster(t, t.TempDir())
	gone := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port.Free(t)}
	cfg := verifying(t, good.PKIDir, "recon_max: 1000\n", a, gone)
	d := startMinion(t, cfg)
	select {
	case err := <-d.ended:
		t.Errorf("one refused and one unreachable: the minion ended with %v", err)
	case <-time.After(2 * time.Second):
	}
}
