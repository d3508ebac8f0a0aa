package keyring

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// signed is a master whose key is to be signed, in a key directory of its own.
func signed(t *testing.T, set func(*config.Master)) (key, signing *pki.PrivateKey, sign func() ([]byte, error)) {
	t.Helper()
	cfg := &config.Master{}
	cfg.PKIDir, cfg.KeyType, cfg.MasterSignKeyName = t.TempDir(), "ed25519", "master_sign"
	set(cfg)
	var err error
	if key, _, err = pki.EnsurePair(cfg.PKIDir, "master", pki.Ed25519, 0); err != nil {
		t.Fatal(err)
	}
	if signing, _, err = pki.EnsurePair(cfg.PKIDir, "master_sign", pki.Ed25519, 0); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	return key, signing, func() ([]byte, error) { return Signature(cfg, key.Public(), log) }
}

func TestSignatureIsMade(t *testing.T) {
	key, signing, sign := signed(t, func(c *config.Master) { c.MasterSignPubkey = true })
	sig, err := sign()
	if err != nil {
		t.Fatal(err)
	}
	if err := signing.Public().VerifyPublic(key.Public(), sig); err != nil {
		t.Error(err)
	}
}

// TestTheSigningPairIsMade: a member of a cluster that makes a pair of its own is one that the others refuse.
func TestTheSigningPairIsMade(t *testing.T) {
	for cluster, want := range map[string]string{"": "level=INFO", "prod": "level=WARN"} {
		cfg, logs := &config.Master{MasterSignPubkey: true, ClusterID: cluster}, &strings.Builder{}
		cfg.PKIDir, cfg.KeyType, cfg.MasterSignKeyName = t.TempDir(), "ed25519", "master_sign"
		key, _, err := pki.EnsurePair(cfg.PKIDir, "master", pki.Ed25519, 0)
		if err == nil {
			_, err = Signature(cfg, key.Public(), slog.New(slog.NewTextHandler(logs, nil)))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := logs.String(); !strings.Contains(got, want) || !strings.Contains(got, "Generating master_sign keys") || strings.Contains(got, "copy master_sign.pem and master_sign.pub") != (cluster != "") {
			t.Errorf("cluster_id %q: it logs %s", cluster, got)
		}
	}
}

func TestNoSignature(t *testing.T) {
	_, _, sign := signed(t, func(*config.Master) {})
	if sig, err := sign(); sig != nil || err != nil {
		t.Errorf("a signature that nobody asks for: %x, %v", sig, err)
	}
	_, _, sign = signed(t, func(c *config.Master) { c.MasterUsePubkeySignature = true })
	if sig, err := sign(); sig != nil || !errors.Is(err, config.ErrMistake) || salt.Hint(err) == "" {
		t.Errorf("a signature is to be read and none shown: %x, %v, want a mistake and a hint", sig, err)
	}
}

// TestSignatureIsRead: one that does not fit is not a signature at all.
func TestSignatureIsRead(t *testing.T) {
	var dir string
	key, signing, sign := signed(t, func(c *config.Master) {
		c.MasterSignPubkey, c.MasterUsePubkeySignature, dir = true, true, c.PKIDir
	})
	refused := func(why, words string) {
		t.Helper()
		if sig, err := sign(); err == nil || !strings.Contains(err.Error(), words) || salt.Hint(err) == "" {
			t.Errorf("%s: %x, %v; want an error with %q and a hint", why, sig, err, words)
		}
	}
	file := filepath.Join(dir, "master_pubkey_signature")
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused("without a file", "no signature file found")
	write([]byte("no signature\n"))
	refused("of something else", file)
	other, err := signing.SignPublic(signing.Public())
	if err != nil {
		t.Fatal(err)
	}
	write(pki.FormatSignature(other))
	refused("of another key", "not a signature of the master's key")
	sig, err := signing.SignPublic(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	write(pki.FormatSignature(sig))
	if got, err := sign(); err != nil || string(got) != string(sig) {
		t.Errorf("read %x, %v; want %x", got, err, sig)
	}
	if err := os.Remove(filepath.Join(dir, "master_sign.pub")); err != nil {
		t.Fatal(err)
	}
	refused("without the key to check it by", "cannot be checked")
}
