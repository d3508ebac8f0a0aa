package pki

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

func TestClients(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	a, b := Client{"a", generate(t, Ed25519).Public(), until}, Client{"b.x-1", generate(t, Ed25519).Public(), time.Time{}}
	for _, c := range []Client{b, a} {
		if err := s.AddClient(c); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Client(c.Name); err != nil || got != c {
			t.Errorf("%v, %v, want %v", got, err, c)
		}
	}
	if err := s.AddClient(Client{"a", b.Key, time.Time{}}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second key of the same name: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, clientsDir, "broken"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, problems, err := s.Clients()
	if err != nil || len(list) != 2 || list[0] != a || list[1] != b || len(problems) != 1 {
		t.Errorf("listed %v, %v, %v", list, problems, err)
	}
	if err := s.RemoveClient("a"); err != nil {
		t.Error(err)
	}
	if _, err := s.Client("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
	if err := s.RemoveClient("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
	if entries, _, err := s.List(); err != nil || len(entries) != 0 {
		t.Errorf("clients among the minions: %v, %v", entries, err)
	}
}

func TestClientNamesAreNoPaths(t *testing.T) {
	s, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []salt.ClientName{"", ".", "..", "../minions/x", "a/b", ".hidden", "-x", "a b", "a\x00b"} {
		if err := s.AddClient(Client{name, generate(t, Ed25519).Public(), time.Time{}}); !errors.Is(err, salt.ErrClientName) {
			t.Errorf("added %q: %v", name, err)
		}
		if _, err := s.Client(name); !errors.Is(err, salt.ErrClientName) {
			t.Errorf("looked for %q: %v", name, err)
		}
		if err := s.RemoveClient(name); !errors.Is(err, salt.ErrClientName) {
			t.Errorf("removed %q: %v", name, err)
		}
	}
}

// TestClientsOfABrokenFile: what cannot be understood lets nobody in.
func TestClientsOfABrokenFile(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddClient(Client{"a", generate(t, Ed25519).Public(), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, clientsDir, "a")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"no moment": func() error {
			return os.WriteFile(path, []byte(strings.Replace(string(text), "2027-01-01", "some day", 1)), 0o644)
		},
		"others may write": func() error { return errors.Join(os.WriteFile(path, text, 0o644), os.Chmod(path, 0o666)) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if c, err := s.Client("a"); err == nil {
			t.Errorf("%s: %v", name, c)
		}
	}
}
