package keyring

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/capture"
)

// twoPairs is the configuration of a master with two signing pairs, which it does not use.
func twoPairs(t *testing.T) *config.Master {
	t.Helper()
	cfg := config.NewMaster()
	cfg.PKIDir, cfg.CacheDir, cfg.KeyType = t.TempDir(), t.TempDir(), string(pki.Ed25519)
	for _, name := range []string{"master_sign", "other_sign"} {
		if _, _, err := pki.EnsurePair(cfg.PKIDir, name, pki.Ed25519, 0); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

func own(t *testing.T, cfg *config.Master) Own {
	t.Helper()
	o, err := OpenOwn(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestAStartTellsWhatMinionsRefuse: a master that begins to sign its key, ends it, or signs with another key says
// once what minions do that are not prepared. One that was always like this says nothing, nor does one without minions.
func TestAStartTellsWhatMinionsRefuse(t *testing.T) {
	cfg := twoPairs(t)
	start := func(signs bool, key string, minions int) string {
		t.Helper()
		cfg.MasterSignPubkey, cfg.MasterSignKeyName = signs, key
		var said capture.Buffer
		TellSigning(cfg, own(t, cfg), minions, slog.New(slog.NewTextHandler(&said, nil)))
		return said.String()
	}
	for i, c := range []struct {
		signs   bool
		key     string
		minions int
		says    string // "" is nothing at all
	}{
		{true, "master_sign", 3, ""},
		{false, "master_sign", 3, "does not sign its key any more: minions with verify_master_pubkey_sign: True refuse it"},
		{false, "master_sign", 3, ""},
		{true, "master_sign", 3, "signs its key from now on: minions without verify_master_pubkey_sign: True"},
		{true, "master_sign", 3, ""},
		{true, "other_sign", 3, "signs its key with another signing key from now on"},
		{true, "other_sign", 3, ""},
		{false, "master_sign", 0, ""},
		{true, "master_sign", 0, ""},
		{true, "master_sign", 3, ""},
	} {
		said := start(c.signs, c.key, c.minions)
		if (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("start %d says %q, want %q", i+1, said, c.says)
		}
		if said != "" && (strings.Count(said, "\n") != 1 || !strings.Contains(said, "level=WARN") || !strings.Contains(said, "minions=3") || !strings.Contains(said, "hint=")) {
			t.Errorf("start %d says %q, want one warning with the number of minions and a hint", i+1, said)
		}
	}
	if err := os.RemoveAll(cfg.CacheDir); err != nil {
		t.Fatal(err)
	}
	if said := start(true, "master_sign", 3); !strings.Contains(said, "cannot be recorded") {
		t.Errorf("without a directory: %q", said)
	}
}

// TestAJoinTellsWhatMinionsRefuse before the master is a member, which signs its key.
func TestAJoinTellsWhatMinionsRefuse(t *testing.T) {
	now, later := twoPairs(t), *config.NewMaster()
	later.PKIDir, later.MasterSignPubkey, later.MasterSignKeyName = now.PKIDir, true, "master_sign"
	check := func(what string, cfg *config.Master, minions int, want string) {
		t.Helper()
		err := own(t, now).SigningChange(cfg, minions)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(salt.Hint(err), "doc/masters.md")) {
			t.Errorf("%s: %v (%s), want %q", what, err, salt.Hint(err), want)
		}
	}
	check("it does not sign yet", &later, 2, "does not sign its key yet, and will from its next start on: minions without verify_master_pubkey_sign: True, or without")
	check("without minions", &later, 0, "")
	check("it will not sign", now, 2, "")
	now.MasterSignPubkey = true
	check("it signs already", &later, 2, "")
	now.MasterSignKeyName = "other_sign"
	check("it signs with another key", &later, 2, "with another signing key from its next start on")
	if err := os.Remove(filepath.Join(now.PKIDir, "master_sign.pub")); err != nil {
		t.Fatal(err)
	}
	check("the key is missing, which is said elsewhere", &later, 2, "")
}
