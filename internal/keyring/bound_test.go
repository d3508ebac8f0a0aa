package keyring

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// shown is a keyring to which new keys are shown.
type shown struct {
	*Keyring
	t   *testing.T
	cfg *config.Master
}

// newKeys opens a keyring with rules.
func newKeys(t *testing.T, rules func(*config.Master)) *shown {
	t.Helper()
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	rules(cfg)
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &shown{k, t, cfg}
}

// admit shows a new key, and returns it.
func (s *shown) admit(id salt.MinionID, host, want string, limited error) pki.PublicKey {
	s.t.Helper()
	key := bustest.Key(s.t).Public()
	s.again(id, key, host, want, limited)
	return key
}

func (s *shown) again(id salt.MinionID, key pki.PublicKey, host, want string, limited error) {
	s.t.Helper()
	v, err := s.Admit(id, key, host+":1", host)
	if err != nil || v.Act != want || !errors.Is(v.Limited, limited) || (v.Limited == nil) != (limited == nil) {
		s.t.Errorf("%s of %s: %+v, %v; want %s, limited: %v", id, host, v, err, want, limited)
	}
}

// files checks how many keys are in a directory.
func (s *shown) files(dir string, want int) {
	s.t.Helper()
	files, err := os.ReadDir(filepath.Join(s.cfg.PKIDir, dir))
	if err != nil || len(files) != want {
		s.t.Errorf("%s has %d files, want %d: %v", dir, len(files), want, err)
	}
}

// TestRulesAcceptNotWithoutEnd: beyond what rules accept of one host and in all, a key waits like any other, gives way to
// others, and is accepted by an operator, or by the rule when there is room again.
func TestRulesAcceptNotWithoutEnd(t *testing.T) {
	grains := t.TempDir()
	if err := os.WriteFile(filepath.Join(grains, "uuid"), []byte("8a1c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, rule := range map[string]func(*config.Master){
		"auto_accept": func(c *config.Master) { c.AutoAccept = true },
		"open_mode":   func(c *config.Master) { c.OpenMode = true },
		"autosign_file": func(c *config.Master) {
			c.AutosignFile = filepath.Join(t.TempDir(), "autosign")
			if err := os.WriteFile(c.AutosignFile, []byte("m*\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newKeys(t, func(c *config.Master) { rule(c); c.AutosignGrainsDir = grains })
				s.MostAccepted, s.MostOfHost, s.Store.MostOfHost = 6, 3, 2
				for n := range 3 {
					s.admit(salt.MinionID(fmt.Sprint("m", n)), "192.0.2.66", "accept", nil)
				}
				var key pki.PublicKey
				for n := range 5 {
					key = s.admit(salt.MinionID(fmt.Sprint("m6", n)), "192.0.2.66", "pend", errOfHost)
				}
				s.files("minions_pre", 2)
				other := s.admit("m4", "192.0.2.1", "accept", nil)
				s.again("m4", other, "192.0.2.1", "accept", nil) // it is known
				time.Sleep(time.Second)
				s.again("m64", key, "192.0.2.66", "accept", nil)

				table := false
				s.Room = func() bool { return table }
				waits := s.admit("m5", "192.0.2.1", "pend", errTable)
				if ok, err := s.SignByGrains(pki.Entry{ID: "m5", State: pki.Pending, Key: waits}, "192.0.2.1:1", map[string]string{"uuid": "8a1c"}); ok || !errors.Is(err, errTable) {
					t.Errorf("it is accepted by a grain: %t, %v", ok, err)
				}
				table = true
				s.again("m5", waits, "192.0.2.1", "accept", nil)
				s.files("minions", 6)
				last := s.admit("m7", "192.0.2.2", "pend", errAccepted)
				if later, err := s.AcceptsByRule("m7"); err != nil || !later {
					t.Errorf("the rule does not accept it later: %v", err)
				}
				if err := s.Store.Accept(pki.Entry{ID: "m7", State: pki.Pending, Key: last}); err != nil {
					t.Fatal(err)
				}
				if err := s.Look("m7"); err != nil {
					t.Fatal(err)
				}
				s.again("m7", last, "192.0.2.2", "accept", nil)
			})
		})
	}
}

// TestRulesRecordFewRejections: a key that a rule rejects is refused with or without a record. Keys that already wait are
// moved.
func TestRulesRecordFewRejections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "autoreject")
	s := newKeys(t, func(c *config.Master) { c.AutorejectFile = path })
	s.MostRejected = 3
	known := s.admit("m0", "192.0.2.1", "pend", nil)
	if err := os.WriteFile(path, []byte("m*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := s.admit("m1", "192.0.2.66", "reject", nil)
	s.admit("m1", "192.0.2.66", "denied", nil) // the rejected key holds the id
	s.admit("m2", "192.0.2.66", "reject", nil)
	s.admit("m3", "192.0.2.66", "reject", nil)
	for n := range 10 {
		s.admit(salt.MinionID(fmt.Sprint("m4", n)), "192.0.2.66", "reject", errRejected)
	}
	s.files("minions_rejected", 3)
	s.files("minions_pre", 1)
	s.files("minions_denied", 1)
	s.again("m0", known, "192.0.2.1", "reject", nil)
	s.again("m1", first, "192.0.2.66", "reject", nil)
	s.files("minions_rejected", 4)
	if err := s.Refresh(); err != nil || s.rejected != 4 {
		t.Errorf("%d keys are rejected, want 4: %v", s.rejected, err)
	}
	if err := s.Store.Delete(pki.Entry{ID: "m0", State: pki.Rejected, Key: known}); err != nil {
		t.Fatal(err)
	}
	if err := s.Store.Delete(pki.Entry{ID: "m1", State: pki.Rejected, Key: first}); err != nil {
		t.Fatal(err)
	}
	if err := s.Look("m0", "m1"); err != nil || s.rejected != 2 {
		t.Errorf("%d keys are rejected, want 2: %v", s.rejected, err)
	}
	s.admit("m5", "192.0.2.66", "reject", nil)
}

// TestKeysOfAnIDThatIsHeldAreBounded: a rule that matches an id with an accepted key makes no room for other keys of it.
func TestKeysOfAnIDThatIsHeldAreBounded(t *testing.T) {
	s := newKeys(t, func(c *config.Master) { c.AutoAccept = true })
	s.Store.MostOfHost = 2
	for n := range 5 {
		id := salt.MinionID(fmt.Sprint("m", n))
		s.admit(id, "192.0.2.1", "accept", nil)
		s.admit(id, "192.0.2.66", "denied", nil)
	}
	s.files("minions_denied", 2)
}

// TestHostsAreForgotten: as many as show keys, few are remembered.
func TestHostsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bounds
		for n := range maxHosts {
			b.spend(fmt.Sprint(n))
		}
		time.Sleep(time.Second)
		b.spend("new")
		if len(b.hosts) != 1 {
			t.Errorf("%d hosts are remembered", len(b.hosts))
		}
	})
}
