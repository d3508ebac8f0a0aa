package keyring

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// TestCheckOwnSaysWhatAStartWould: for each state of the key, the signing pair and the signature it finds what a start fails for,
// and changes nothing.
func TestCheckOwnSaysWhatAStartWould(t *testing.T) {
	read := func(t *testing.T, path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	write := func(t *testing.T, path string, text []byte, mode os.FileMode) {
		if err := os.WriteFile(path, text, mode); err != nil {
			t.Fatal(err)
		}
	}
	pair := func(t *testing.T, dir, name string) *pki.PrivateKey {
		key, _, err := pki.EnsurePair(dir, name, pki.Ed25519, 0)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	signature := func(t *testing.T, dir string, of, by *pki.PrivateKey) {
		sig, err := by.SignPublic(of.Public())
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "master_pubkey_signature"), pki.FormatSignature(sig), 0o644)
	}
	const sign, use = 1, 2
	for name, c := range map[string]struct {
		set  int
		make func(t *testing.T, dir string)
		want string // "" if nothing is wrong
	}{
		"nothing is there":       {sign, func(*testing.T, string) {}, ""},
		"all is well":            {sign, func(t *testing.T, dir string) { pair(t, dir, "master"); pair(t, dir, "master_sign") }, ""},
		"a signature that fits":  {sign | use, func(t *testing.T, dir string) { signature(t, dir, pair(t, dir, "master"), pair(t, dir, "master_sign")) }, ""},
		"the public key is lost": {0, func(t *testing.T, dir string) { pair(t, dir, "master"); remove(t, filepath.Join(dir, "master.pub")) }, ""},
		"another public key": {0, func(t *testing.T, dir string) {
			pair(t, dir, "master")
			write(t, filepath.Join(dir, "master.pub"), read(t, filepath.Join(pairIn(t), "master.pub")), 0o644)
		}, "master.pub: it does not belong to the private key beside it"},
		"another public signing key": {sign, func(t *testing.T, dir string) {
			pair(t, dir, "master")
			pair(t, dir, "master_sign")
			write(t, filepath.Join(dir, "master_sign.pub"), read(t, filepath.Join(pairIn(t), "master.pub")), 0o644)
		}, "master_sign.pub: it does not belong to the private key beside it"},
		"one that is not asked for": {0, func(t *testing.T, dir string) {
			pair(t, dir, "master")
			write(t, filepath.Join(dir, "master_sign.pub"), []byte("x"), 0o644)
		}, ""},
		"the private signing key is missing": {sign, func(t *testing.T, dir string) {
			pair(t, dir, "master")
			pair(t, dir, "master_sign")
			remove(t, filepath.Join(dir, "master_sign.pem"))
		}, "its private half"},
		"others may read it": {sign, func(t *testing.T, dir string) {
			pair(t, dir, "master")
			pair(t, dir, "master_sign")
			if err := os.Chmod(filepath.Join(dir, "master_sign.pem"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "others may access it"},
		"no signature": {sign | use, func(t *testing.T, dir string) { pair(t, dir, "master"); pair(t, dir, "master_sign") }, "no signature file found"},
		"a signature of another key": {sign | use, func(t *testing.T, dir string) {
			pair(t, dir, "master")
			signature(t, dir, pair(t, t.TempDir(), "other"), pair(t, dir, "master_sign"))
		}, "is not a signature of the master's key"},
		"a signature by another pair": {sign | use, func(t *testing.T, dir string) {
			pair(t, dir, "master_sign")
			signature(t, dir, pair(t, dir, "master"), pair(t, t.TempDir(), "other"))
		}, "is not a signature of the master's key"},
		"no key to check it with":         {sign | use, func(t *testing.T, dir string) { k := pair(t, dir, "master"); signature(t, dir, k, k) }, "cannot be checked"},
		"a signature that no minion gets": {use, func(t *testing.T, dir string) { pair(t, dir, "master") }, "master_sign_pubkey is not"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &config.Master{MasterSignPubkey: c.set&sign != 0, MasterUsePubkeySignature: c.set&use != 0}
			cfg.PKIDir, cfg.KeyType, cfg.MasterSignKeyName = t.TempDir(), "ed25519", "master_sign"
			c.make(t, cfg.PKIDir)
			before := filesIn(t, cfg.PKIDir)
			said := CheckOwn(cfg)
			if after := filesIn(t, cfg.PKIDir); !maps.Equal(before, after) {
				t.Errorf("there was %v, and now there is %v", before, after)
			}
			_, err := OpenOwn(cfg, slog.New(slog.DiscardHandler))
			if strings.Contains(c.want, "is not a signature") && !strings.Contains(salt.Hint(said), "'salt-key --gen-signature --force'") {
				t.Errorf("the hint %q does not replace the file", salt.Hint(said))
			}
			if fmt.Sprint(said) != fmt.Sprint(err) || c.want == "" && err != nil || !strings.Contains(fmt.Sprint(said), c.want) {
				t.Errorf("the check says %v, and a start %v, want %q", said, err, c.want)
			}
		})
	}
}

// pairIn returns a directory with a key pair that is called master.
func pairIn(t *testing.T) string {
	dir := t.TempDir()
	if _, _, err := pki.EnsurePair(dir, "master", pki.Ed25519, 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// filesIn are the files of a directory, with their modes and contents.
func filesIn(t *testing.T, dir string) map[string]string {
	files := map[string]string{}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name()] = fmt.Sprint(info.Mode(), string(text))
	}
	return files
}

func remove(t *testing.T, path string) {
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
