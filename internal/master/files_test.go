package master_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// served puts a file into the file_roots of a world.
func (w *world) served(name, text string) {
	w.t.Helper()
	place := filepath.Join(w.dir, "srv", name)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(place, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func TestMinionGetsFiles(t *testing.T) {
	w := start(t, "auto_accept: true\nfile_roots: {base: [srv], dev: [srv/dev]}\n")
	l := w.minion("web1", pong)
	big := make([]byte, 9<<20+17) // more than the window of an answer
	if _, err := rand.Read(big); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "A", "empty": "", "dev/b": "B", "big": string(big)} {
		w.served(name, text)
	}
	cache := fileserver.NewCache(t.TempDir(), peer.Files{Conn: func() *rpc.Conn { return l.Conn }})
	for _, row := range [][3]string{{"base", "a", "A"}, {"base", "empty", ""}, {"dev", "b", "B"}, {"base", "dev/b", "B"}, {"base", "big", string(big)}} {
		place, f, err := cache.Fetch(t.Context(), row[0], row[1])
		b, _ := os.ReadFile(place)
		if err != nil || string(b) != row[2] || f.Size != int64(len(row[2])) {
			t.Errorf("%s of %s: %d bytes, %+v, %v", row[1], row[0], len(b), f, err)
		}
	}
	var b bytes.Buffer
	f, err := cache.Stat(t.Context(), "base", "big")
	if err != nil || f.Size != int64(len(big)) || f.SHA256 == "" {
		t.Errorf("stat: %+v, %v", f, err)
	}
	if _, err := cache.Get(t.Context(), "base", "big", f.SHA256, &b); err != nil || b.Len() > 0 {
		t.Errorf("what the minion has was sent again: %d bytes, %v", b.Len(), err)
	}
	envs, err := cache.Environments(t.Context())
	if err != nil || strings.Join(envs, " ") != "base dev" {
		t.Errorf("environments %q, %v", envs, err)
	}
	files, err := cache.List(t.Context(), "base")
	if err != nil || len(files) != 4 || files[0].Path != "a" {
		t.Errorf("list: %+v, %v", files, err)
	}
}

func TestALongListOfFiles(t *testing.T) {
	w := start(t, "auto_accept: true\nfile_roots: {base: [srv]}\n")
	l := w.minion("web1", pong)
	for i := range 1203 {
		w.served("d/"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+"/"+strings.Repeat("y", i/50+1), "")
	}
	files, err := peer.Files{Conn: func() *rpc.Conn { return l.Conn }}.List(t.Context(), "base")
	if err != nil || len(files) < 1000 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// TestFilesOutsideAreNotServed is a minion with an accepted key and a client of its
// own, which does not check what it asks for.
func TestFilesOutsideAreNotServed(t *testing.T) {
	w := start(t, "auto_accept: true\nfile_roots: {base: [srv]}\n")
	l := w.minion("web1", pong)
	w.served("in", "in")
	w.served("sub/in", "in")
	secret := filepath.Join(w.dir, "etc", "salt", "pki", "master", "master.pem")
	for name, to := range map[string]string{"link": secret, "dir": w.dir, "rel": "../master"} {
		if err := os.Symlink(to, filepath.Join(w.dir, "srv", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		"../master", "sub/../../master", "/etc/passwd", secret, "in\x00", "..\\master", "%2e%2e/master", "..%2fmaster", "link", "dir/master", "rel", "dir", "sub", "", ".", "./in", "//in",
	} {
		for _, stat := range []bool{true, false} {
			var f fileserver.File
			err := l.Ask(t.Context(), protocol.OpFile, protocol.GetFile{Environment: "base", Path: path, Stat: stat}, &f)
			if code := rpc.CodeOf(err); code != rpc.Denied && code != rpc.NotFound || f.SHA256 != "" {
				t.Errorf("%q: %+v, %v", path, f, err)
			}
			if err != nil && strings.Contains(err.Error(), w.dir) && !strings.Contains(path, w.dir) {
				t.Errorf("%q: the error tells the master's paths: %v", path, err)
			}
		}
	}
	for _, env := range []string{"..", "../..", "base/..", "/", "nosuch", "base\x00"} {
		err := l.Ask(t.Context(), protocol.OpFile, protocol.GetFile{Environment: env, Path: "in"}, nil)
		if code := rpc.CodeOf(err); code != rpc.Denied && code != rpc.NotFound {
			t.Errorf("environment %q: %v", env, err)
		}
		if err := l.Ask(t.Context(), protocol.OpFiles, protocol.Files{Environment: env}, nil); err == nil {
			t.Errorf("environment %q is listed", env)
		}
	}
}

// TestFilesAreForAcceptedMinions asks as those who are none.
func TestFilesAreForAcceptedMinions(t *testing.T) {
	w := start(t, "file_roots: {base: [srv]}\n")
	w.served("in", "in")
	unaccepted, err := w.offerKey("web9", key(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unaccepted.Close()
	user := w.user()
	defer user.Close()
	for who, conn := range map[string]*rpc.Conn{"an unaccepted key": unaccepted.Conn, "a local user": user} {
		// The server drops the request of an unaccepted key without an answer.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		files, got := peer.Files{Conn: func() *rpc.Conn { return conn }}, new(bytes.Buffer)
		if _, err := files.Get(ctx, "base", "in", "", got); err == nil || got.Len() > 0 {
			t.Errorf("%s got %q, %v", who, got, err)
		}
		cancel()
	}
}
