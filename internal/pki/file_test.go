package pki

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestLoadPrivateRefuses(t *testing.T) {
	dir, k := t.TempDir(), newKey(t)
	file := func(name string, data []byte, mode fs.FileMode) string {
		return writeFile(t, filepath.Join(dir, name), data, mode)
	}
	fifo := filepath.Join(dir, "fifo.pem")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, path, want, hint string }{
		{"missing", filepath.Join(dir, "nosuch.pem"), "no such file", "--gen-keys=nosuch"},
		{"directory", dir, "is a directory", "name the file"},
		{"fifo without writer", fifo, "not a regular file", "ordinary file"},
		{"device", "/dev/zero", "not a regular file", "ordinary file"},
		{"group may read", file("g.pem", k.PEM(), 0o440), "mode is 0440", "chmod 0400"},
		{"world may read", file("w.pem", k.PEM(), 0o604), "mode is 0604", "chmod 0400"},
		{"public key", file("p.pem", k.Public().PEM(), 0o400), ErrWantedSecret.Error(), ".pub"},
		{"garbage", file("x.pem", []byte("hello"), 0o400), "no PEM block", "one private key"},
		{"empty", file("e.pem", nil, 0o400), "no PEM block", "one private key"},
		{"two keys", file("2.pem", append(k.PEM(), k.PEM()...), 0o400), "more than one", "one private key"},
		{"endless", file("l.pem", bytes.Repeat([]byte("x"), maxKeyFile+1), 0o400), "longer than", "one private key"},
	}
	for _, tt := range tests {
		got, err := LoadPrivate(tt.path)
		if err == nil || got != nil {
			t.Errorf("%s: LoadPrivate = %v, %v; want an error", tt.name, got, err)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.path) || !strings.Contains(salt.Hint(err), tt.hint) {
			t.Errorf("%s: %v (hint: %s); want %q (hint: %q)", tt.name, err, salt.Hint(err), tt.want, tt.hint)
		}
	}
	if _, err := LoadPrivate(filepath.Join(dir, "nosuch.pem")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v; want ErrNotExist", err)
	}
}

func TestLoadRefusesForeignOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: cannot make a file of another user")
	}
	dir, k := t.TempDir(), newKey(t)
	private := writeFile(t, filepath.Join(dir, "a.pem"), k.PEM(), 0o400)
	public := writeFile(t, filepath.Join(dir, "a.pub"), k.Public().PEM(), 0o644)
	for _, path := range []string{private, public} {
		if err := os.Chown(path, 4711, -1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LoadPrivate(private); err == nil || !strings.Contains(err.Error(), "user 4711") {
		t.Errorf("foreign private key: %v", err)
	}
	if _, err := LoadPublic(public); err == nil || !strings.Contains(err.Error(), "user 4711") {
		t.Errorf("foreign public key: %v", err)
	}
}

func TestLoadPublic(t *testing.T) {
	dir, k := t.TempDir(), newKey(t)
	good := writeFile(t, filepath.Join(dir, "good.pub"), k.Public().PEM(), 0o644)
	if p, err := LoadPublic(good); err != nil || p != k.Public() {
		t.Errorf("LoadPublic = %v, %v", p, err)
	}
	for name, path := range map[string]string{
		"may write it": writeFile(t, filepath.Join(dir, "w.pub"), k.Public().PEM(), 0o666),
		"private key":  writeFile(t, filepath.Join(dir, "p.pub"), k.PEM(), 0o600),
	} {
		if p, err := LoadPublic(path); err == nil || !strings.Contains(err.Error(), name) || !p.IsZero() {
			t.Errorf("%s: LoadPublic = %v, %v", name, p, err)
		}
	}
}

func TestEnsurePairModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "etc", "pki")
	k, created, err := EnsurePair(dir, "master", Ed25519, 0)
	if err != nil || !created {
		t.Fatalf("EnsurePair = %v, %v, %v", k, created, err)
	}
	for path, want := range map[string]fs.FileMode{
		dir: 0o700, filepath.Dir(dir): 0o755,
		filepath.Join(dir, "master.pem"): 0o400, filepath.Join(dir, "master.pub"): 0o644,
	} {
		if got := modeOf(t, path); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
	}
	again, created, err := EnsurePair(dir, "master", RSA, 2048)
	if err != nil || created || again.Public() != k.Public() {
		t.Errorf("second EnsurePair = %v, %v, %v; want the first key", again, created, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestEnsurePairTightens(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	k := newKey(t)
	writeFile(t, filepath.Join(dir, "minion.pem"), k.PEM(), 0o600)
	writeFile(t, filepath.Join(dir, "minion.pub"), k.Public().PEM(), 0o666)
	got, created, err := EnsurePair(dir, "minion", Ed25519, 0)
	if err != nil || created || got.Public() != k.Public() {
		t.Fatalf("EnsurePair = %v, %v, %v", got, created, err)
	}
	if modeOf(t, dir) != 0o700 || modeOf(t, filepath.Join(dir, "minion.pub")) != 0o644 {
		t.Errorf("modes: %04o and %04o", modeOf(t, dir), modeOf(t, filepath.Join(dir, "minion.pub")))
	}
}

func TestEnsurePairRefuses(t *testing.T) {
	k, other := newKey(t), newKey(t)
	tests := []struct {
		name             string
		private, public  []byte
		mode             fs.FileMode
		want, hint       string
		foreignDirectory bool
	}{
		{name: "readable private key", private: k.PEM(), mode: 0o644, want: "others may access it", hint: "chmod 0400"},
		{name: "public half only", public: k.Public().PEM(), want: "private half", hint: "put"},
		{name: "halves of two keys", private: k.PEM(), public: other.Public().PEM(), mode: 0o400, want: "does not belong", hint: "remove"},
		{name: "broken private key", private: []byte("x"), mode: 0o400, want: "no PEM block", hint: "one private key"},
		{name: "directory of another user", foreignDirectory: true, want: "user 4711 owns it", hint: "chown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pki")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.private != nil {
				writeFile(t, filepath.Join(dir, "k.pem"), tt.private, tt.mode)
			}
			if tt.public != nil {
				writeFile(t, filepath.Join(dir, "k.pub"), tt.public, 0o644)
			}
			if tt.foreignDirectory {
				if os.Geteuid() != 0 {
					t.Skip("not root: cannot make a directory of another user")
				}
				if err := os.Chown(dir, 4711, -1); err != nil {
					t.Fatal(err)
				}
			}
			_, created, err := EnsurePair(dir, "k", Ed25519, 0)
			if err == nil || created || !strings.Contains(err.Error(), tt.want) || !strings.Contains(salt.Hint(err), tt.hint) {
				t.Errorf("EnsurePair: %v (hint: %s); want %q (hint: %q)", err, salt.Hint(err), tt.want, tt.hint)
			}
			if text, _ := os.ReadFile(filepath.Join(dir, "k.pem")); !bytes.Equal(text, tt.private) {
				t.Error("the private key was touched")
			}
		})
	}
}

func TestEnsurePairAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	var mu sync.Mutex
	var wg sync.WaitGroup
	keys, news := map[PublicKey]bool{}, 0
	for range 16 {
		wg.Go(func() {
			k, created, err := EnsurePair(dir, "master", Ed25519, 0)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			keys[k.Public()] = true
			if created {
				news++
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
	if len(keys) != 1 || news != 1 {
		t.Errorf("%d keys, %d of them new; want one", len(keys), news)
	}
}

func TestWritePair(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir, k := t.TempDir(), newKey(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := k.WritePair(dir, "fresh"); err != nil {
		t.Fatal(err)
	}
	if modeOf(t, dir) != 0o755 || modeOf(t, filepath.Join(dir, "fresh.pem")) != 0o400 {
		t.Errorf("modes: %04o and %04o", modeOf(t, dir), modeOf(t, filepath.Join(dir, "fresh.pem")))
	}
	if err := newKey(t).WritePair(dir, "fresh"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second WritePair: %v; want ErrExist", err)
	}
	if got, err := LoadPrivate(filepath.Join(dir, "fresh.pem")); err != nil || got.Public() != k.Public() {
		t.Errorf("the key was overwritten: %v, %v", got, err)
	}
	made := filepath.Join(dir, "new")
	if err := k.WritePair(made, "x"); err != nil || modeOf(t, made) != 0o700 {
		t.Errorf("new directory: %v, mode %04o", err, modeOf(t, made))
	}
}
