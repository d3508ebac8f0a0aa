package keyring

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// TestAnAcceptedMinionStaysATarget: a look at the store that began before a key was
// accepted, and ends after that, does not take its minion away again.
func TestAnAcceptedMinionStaysATarget(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir, cfg.AutoAccept = t.TempDir(), true
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
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
			if err := k.Refresh(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	defer func() { close(stop); deadline.Receive(t, stopped, "stopped") }()
	key := bustest.Key(t).Public()
	var accepted []salt.MinionID
	for i := range 100 {
		id := salt.MinionID(fmt.Sprintf("m%03d", i))
		if v, err := k.Admit(id, key, "127.0.0.1:1", "127.0.0.1"); err != nil || v.State != pki.Accepted {
			t.Fatalf("%s: %+v, %v", id, v, err)
		}
		accepted = append(accepted, id)
		for range 50 {
			if ids := k.IDs(); !slices.Equal(ids, accepted) {
				t.Fatalf("%d minions are targets after %d were accepted", len(ids), len(accepted))
			}
		}
	}
}

// Keys that one host makes up without end push out each other, of which the log has a
// number, and minions that are known or accepted beforehand come in.
func TestKeysWithoutEnd(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	cfg.AutosignFile = filepath.Join(t.TempDir(), "autosign")
	if err := os.WriteFile(cfg.AutosignFile, []byte("good\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	here := map[string]bool{}
	k.Here = func(token string) bool { return here[token] }
	k.Store.Most, k.Store.MostOfHost = 8, 6
	admit := func(id string, key pki.PublicKey, host, want string) {
		t.Helper()
		if v, err := k.Admit(salt.MinionID(id), key, host+":1", host); err != nil || v.Act != want {
			t.Fatalf("%s: %+v, %v; want %s", id, v, err, want)
		}
		if err := k.Look(salt.MinionID(id)); err != nil { // as the watch does
			t.Fatal(err)
		}
	}
	known, waits := bustest.Key(t).Public(), bustest.Key(t).Public()
	admit("good", known, "192.0.2.1", "accept")
	admit("patient", waits, "192.0.2.1", "pend")
	here[bus.KeyToken(waits.Key())] = true
	k.Take()
	for i := range 20 {
		admit(fmt.Sprint("eve", i), bustest.Key(t).Public(), "192.0.2.66", "pend")
	}
	admit("good", known, "192.0.2.1", "accept")
	admit("patient", waits, "192.0.2.1", "pend")
	for id := range k.known {
		if err := k.Look(id); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range k.Take() {
		if c.After == pki.Unknown && !c.GaveWay {
			t.Errorf("%s was deleted, as it seems", c.ID)
		}
	}
	waiting, err := os.ReadDir(filepath.Join(cfg.PKIDir, "minions_pre"))
	if err != nil || len(waiting) != 7 || len(k.known) != 8 {
		t.Errorf("%d keys wait and %d are known, want 7 and 8: %v", len(waiting), len(k.known), err)
	}
	if !slices.Equal(k.IDs(), []salt.MinionID{"good"}) {
		t.Errorf("targets: %s", k.IDs())
	}
}

// TestAKeyThatMadeRoomIsFoundLater: the look that finds it missing may come after a look at other keys. If it
// comes back, a person who then deletes it has done so.
func TestAKeyThatMadeRoomIsFoundLater(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k.Store.MostOfHost = 1
	first, second := bustest.Key(t).Public(), bustest.Key(t).Public()
	admit := func(id salt.MinionID, key pki.PublicKey) {
		t.Helper()
		if _, err := k.Admit(id, key, "192.0.2.66:1", "192.0.2.66"); err != nil {
			t.Fatal(err)
		}
	}
	look := func(id salt.MinionID) (list []Change) {
		t.Helper()
		if err := k.Look(id); err != nil {
			t.Fatal(err)
		}
		return k.Take()
	}
	gone := func(list []Change, gaveWay bool) {
		t.Helper()
		if len(list) != 1 || list[0].After != pki.Unknown || list[0].GaveWay != gaveWay {
			t.Errorf("%+v, want that one is gone, and that it made room: %v", list, gaveWay)
		}
	}
	admit("first", first)
	look("first")
	admit("second", second)
	look("second")
	gone(look("first"), true)
	admit("first", first)
	gone(look("second"), true)
	look("first")

	// One that was not taken yet as waiting.
	admit("second", second)
	if err := k.Look("second"); err != nil {
		t.Fatal(err)
	}
	admit("first", first) // it was there all the time, as far as anybody looked
	k.Take()
	gone(look("second"), true)

	if look("first"); len(k.gaveWay) > 0 {
		t.Errorf("%d keys that are back are remembered", len(k.gaveWay))
	}
	if err := k.Store.Delete(pki.Entry{ID: "first", Key: first, State: pki.Pending}); err != nil {
		t.Fatal(err)
	}
	gone(look("first"), false)
}

// TestAcceptedInBetween: a key that was accepted and is gone at the next look was accepted
// all the same, and whoever came in with it is to be cut.
func TestAcceptedInBetween(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir, cfg.AutoAccept = t.TempDir(), true
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	key := bustest.Key(t).Public()
	if v, err := k.Admit("web1", key, "192.0.2.1:1", "192.0.2.1"); err != nil || v.State != pki.Accepted {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := os.Remove(filepath.Join(cfg.PKIDir, "minions", "web1")); err != nil {
		t.Fatal(err)
	}
	if err := k.Look("web1"); err != nil {
		t.Fatal(err)
	}
	name := pki.Name{ID: "web1", Finger: key.SHA256()}
	want := []Change{{Name: name, Before: pki.Unknown, After: pki.Accepted, Rule: "auto_accept"}, {Name: name, Before: pki.Accepted, After: pki.Unknown}}
	if got := k.Take(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestOneKeyInTwoDirectories: a minion whose key file is taken away connects again, and is in
// two states once the file is back. It is one thing to every look, and the very one that is
// told to whoever connects.
func TestOneKeyInTwoDirectories(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	key := bustest.Key(t).Public()
	for id, dirs := range map[salt.MinionID][]string{
		"both":     {"minions_pre", "minions"},
		"rejected": {"minions_rejected", "minions"},
		"denied":   {"minions", "minions_denied", "minions_pre"},
		"waiting":  {"minions_pre", "minions_rejected"},
	} {
		for _, dir := range dirs {
			if err := os.WriteFile(filepath.Join(cfg.PKIDir, dir, string(id)), key.PEM(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, look := range map[string]func() error{"all": k.Refresh, "these": func() error { return k.Look("both", "rejected", "denied", "waiting") }} {
		if err := look(); err != nil {
			t.Fatal(err)
		}
		if ids := k.IDs(); !slices.Equal(ids, []salt.MinionID{"both"}) {
			t.Errorf("after a look at %s the targets are %q", name, ids)
		}
		for _, id := range []salt.MinionID{"both", "rejected", "denied", "waiting"} {
			if want, err := k.Store.Lookup(id, key); err != nil || k.known[id][key.SHA256()] != want {
				t.Errorf("after a look at %s the key of %s is %s, %v; who connects with it is %s", name, id, k.known[id][key.SHA256()], err, want)
			}
		}
	}
}

// TestAKeyOfAnyStateIsThere: an id has a key also while that waits or is rejected, and none once it is deleted.
func TestAKeyOfAnyStateIsThere(t *testing.T) {
	cfg := config.NewMaster()
	cfg.PKIDir = t.TempDir()
	k, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	key := bustest.Key(t).Public()
	has := func(want bool) {
		t.Helper()
		if err := k.Look("web1"); err != nil {
			t.Fatal(err)
		}
		if got, err := k.Has("web1"); err != nil || got != want {
			t.Errorf("it has a key: %t, want %t: %v", got, want, err)
		}
	}
	has(false)
	for _, dir := range []string{"minions_pre", "minions_rejected", "minions"} {
		path := filepath.Join(cfg.PKIDir, dir, "web1")
		if err := os.WriteFile(path, key.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		has(true)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		has(false)
	}
}
