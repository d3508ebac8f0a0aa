package keyring

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// unreadable is a regular file of this process that can be opened, but whose first bytes cannot be read: EIO.
const unreadable = "/proc/self/mem"

// TestAnUnreadKeyIsStillKnown: a file that the system fails to read, once or for long, stands for what was known of
// it, to a look at some ids and at all. One that is gone does not, nor one that is not a key.
func TestAnUnreadKeyIsStillKnown(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	var text bytes.Buffer
	k, err := Open(cfg, slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	looks := map[string]func() error{"all": k.Refresh, "some": func() error { return k.Look("web1", "web2") }}
	keys := map[string]pki.PublicKey{}
	in := func(dir string) string { return filepath.Join(cfg.PKIDir, dir) }
	put := func(name string) {
		t.Helper()
		if keys[name].IsZero() {
			keys[name] = bustest.Key(t).Public()
		}
		if err := os.RemoveAll(in(name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in(name), keys[name].PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil := func(name string) {
		t.Helper()
		if err := os.Remove(in(name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(unreadable, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	token := func(name string) string { return bus.KeyToken(keys[name].Key()) }
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			for _, file := range []string{"minions/web1", "minions/web2", "minions_rejected/web1"} {
				put(file)
			}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			k.Take()
			text.Reset()
			spoil("minions/web1")
			spoil("minions_rejected/web1")
			for range 3 {
				if err := look(); err != nil {
					t.Fatal(err)
				}
			}
			if changes := k.Take(); len(changes) > 0 || !slices.Equal(k.IDs(), []salt.MinionID{"web1", "web2"}) {
				t.Errorf("files cannot be read: changes %v, accepted %q", changes, k.IDs())
			}
			accepted := token("minions/web1")
			if !k.Accepts("web1", accepted) || !k.Stands("web1", accepted) || k.Stands("web1", token("minions_rejected/web1")) || k.Stands("web1", "") {
				t.Error("files cannot be read: not the same key is accepted")
			}
			if n := strings.Count(text.String(), "cannot be read now"); n != 2 || !strings.Contains(text.String(), "input/output error") {
				t.Errorf("after three looks two files are told of %d times: %s", n, &text)
			}
			if ids := k.Unread(); !slices.Equal(ids, []salt.MinionID{"web1"}) {
				t.Errorf("to be read again: %q", ids)
			}

			// The accepted key is rejected, by hand, where nothing can be read.
			if err := os.Remove(in("minions/web1")); err != nil {
				t.Fatal(err)
			}
			if k.Stands("web1", accepted) {
				t.Error("the file of the accepted key is gone, and it still counts")
			}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if changes := k.Take(); len(changes) != 1 || changes[0].Before != pki.Accepted || changes[0].After != pki.Unknown || k.Accepts("web1", accepted) {
				t.Errorf("the accepted key is gone: %v", changes)
			}

			put("minions/web1")
			put("minions_rejected/web1")
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if ids := k.Unread(); len(ids) > 0 || !k.Accepts("web1", accepted) {
				t.Errorf("all can be read: again %q", ids)
			}
			if err := os.WriteFile(in("minions/web1"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if k.Stands("web1", accepted) {
				t.Error("the file holds no key, and it still counts")
			}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if ids := k.Unread(); len(ids) > 0 || k.Accepts("web1", accepted) {
				t.Errorf("it is not a key: again %q", ids)
			}
		})
	}
}

// TestARefusalThatCannotBeReadCounts: a key that is in two directories is refused, also while the refusal cannot be
// read.
func TestARefusalThatCannotBeReadCounts(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	key := bustest.Key(t).Public()
	for _, dir := range []string{"minions", "minions_rejected"} {
		if err := os.WriteFile(filepath.Join(cfg.PKIDir, dir, "web1"), key.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Refresh(); err != nil {
		t.Fatal(err)
	}
	rejected := filepath.Join(cfg.PKIDir, "minions_rejected", "web1")
	if err := os.Remove(rejected); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(unreadable, rejected); err != nil {
		t.Fatal(err)
	}
	token := bus.KeyToken(key.Key())
	for name, look := range map[string]func() error{"all": k.Refresh, "one": func() error { return k.Look("web1") }} {
		if err := look(); err != nil {
			t.Fatal(err)
		}
		if k.Accepts("web1", token) || k.Stands("web1", token) || len(k.IDs()) > 0 {
			t.Errorf("after a look at %s it is accepted", name)
		}
	}
}

// TestAKeyIsRefusedWhoseFileCannotBeRead: who refuses the key need not wait until its file can be read. The file, which
// still says that the key is accepted, does not count before it was changed.
func TestAKeyIsRefusedWhoseFileCannotBeRead(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	key := bustest.Key(t).Public()
	token, path := bus.KeyToken(key.Key()), filepath.Join(cfg.PKIDir, "minions", "web1")
	for _, c := range []struct {
		to, state pki.State
	}{{pki.Rejected, pki.Rejected}, {pki.Unknown, pki.Denied}} {
		for name, look := range map[string]func() error{"all": k.Refresh, "one": func() error { return k.Look("web1") }} {
			_ = os.Remove(path)
			if err := os.WriteFile(path, key.PEM(), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			k.Take()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(unreadable, path); err != nil {
				t.Fatal(err)
			}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if !k.Accepts("web1", token) {
				t.Fatal("it is not accepted while its file cannot be read")
			}
			if err := k.Refuse(pki.Name{ID: "web1", Finger: key.SHA256()}, c.to, audit.Who{Source: "b"}); err != nil {
				t.Fatal(err)
			}
			refused := func(when string) {
				t.Helper()
				if k.Accepts("web1", token) || k.Stands("web1", token) || len(k.IDs()) > 0 {
					t.Errorf("%s, %s: it is accepted", name, when)
				}
			}
			refused("refused")
			if changes := k.Take(); len(changes) != 1 || changes[0].Before != pki.Accepted || changes[0].After != c.to {
				t.Errorf("%s: refused: %v", name, changes)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, key.PEM(), 0o600); err != nil {
				t.Fatal(err)
			}
			if ids := k.Unread(); !slices.Equal(ids, []salt.MinionID{"web1"}) {
				t.Errorf("%s: to be looked at: %q", name, ids)
			}
			refused("the file can be read")
			_, now, err := k.ByToken("web1", token)
			v, bad := k.Admit("web1", key, "", "")
			if err != nil || bad != nil || now != c.state || v.State != c.state {
				t.Errorf("%s: it is %v, %v and admitted as %v, %v", name, now, err, v, bad)
			}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			refused("after a look")
			if changes := k.Take(); len(changes) > 0 {
				t.Errorf("%s: after a look: %v", name, changes)
			}
			k.EndRefusal(pki.Name{ID: "web1", Finger: key.SHA256()})
			if ids := k.Unread(); !slices.Equal(ids, []salt.MinionID{"web1"}) {
				t.Errorf("%s: the file counts again, to be looked at: %q", name, ids)
			}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if !k.Accepts("web1", token) || len(k.Unread()) > 0 {
				t.Errorf("%s: the file counts again, and it is refused", name)
			}
		}
	}
}
