package fileserver

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// server is a file server in a folder, and how many bytes it has sent.
type server struct {
	*Roots
	dir  string
	sent int
	lie  string // sent after the content
}

func newServer(t *testing.T) *server {
	dir := t.TempDir()
	return &server{Roots: NewRoots(map[string][]string{"base": {dir}}), dir: dir}
}

func (s *server) put(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (s *server) remove(t *testing.T, name string) {
	if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
		t.Fatal(err)
	}
}

func (s *server) Get(ctx context.Context, env, name, have string, w io.Writer) (File, error) {
	f, err := s.Roots.Get(ctx, env, name, have, io.MultiWriter(w, (*counter)(&s.sent)))
	if s.lie != "" {
		_, _ = io.WriteString(w, s.lie)
	}
	return f, err
}

type counter int

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

func wantCopy(t *testing.T, c *Cache, name, want string) {
	t.Helper()
	place, f, err := c.Fetch(t.Context(), "base", name)
	b, _ := os.ReadFile(place)
	if err != nil || string(b) != want || f.Path != name || place != filepath.Join(c.Dir("base"), name) {
		t.Fatalf("%s: %q at %s, %+v, %v; want %q", name, b, place, f, err, want)
	}
}

func contents(t *testing.T, c *Cache) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(c.dir, content))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFetch(t *testing.T) {
	s := newServer(t)
	c := NewCache(filepath.Join(t.TempDir(), "cache"), s)
	if _, ok := c.Cached("base", "a"); ok {
		t.Error("there is a copy of what was never fetched")
	}
	s.put(t, "a", "one")
	s.put(t, "same", "one")
	s.put(t, "sub/b", "b")
	wantCopy(t, c, "a", "one")
	wantCopy(t, c, "a", "one")
	if s.sent != 3 {
		t.Errorf("%d bytes were sent for a file of 3 that has not changed", s.sent)
	}
	wantCopy(t, c, "same", "one")
	wantCopy(t, c, "sub/b", "b")
	if n := contents(t, c); len(n) != 2 {
		t.Errorf("contents: %q, want two", n)
	}
	s.put(t, "a", "two")
	wantCopy(t, c, "a", "two")
	s.put(t, "same", "two")
	wantCopy(t, c, "same", "two")
	if n := contents(t, c); len(n) != 2 {
		t.Errorf("contents: %q, want that of nobody gone", n)
	}
	// a file where there was a directory, and the other way round
	s.remove(t, "sub")
	s.put(t, "sub", "file")
	wantCopy(t, c, "sub", "file")
	s.remove(t, "sub")
	s.put(t, "sub/b", "again")
	wantCopy(t, c, "sub/b", "again")
	list, err := c.Copies(t.Context(), "base")
	if err != nil || len(list) != 3 {
		t.Errorf("copies: %+v, %v", list, err)
	}
}

func TestDamageIsNoticed(t *testing.T) {
	s := newServer(t)
	c := NewCache(t.TempDir(), s)
	s.put(t, "a", "right")
	wantCopy(t, c, "a", "right")
	if err := os.WriteFile(filepath.Join(c.Dir("base"), "a"), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCopy(t, c, "a", "right")
	s.lie = "and more"
	s.put(t, "b", "b")
	if _, _, err := c.Fetch(t.Context(), "base", "b"); err == nil || !strings.Contains(err.Error(), "the sum") {
		t.Errorf("content with another sum: %v", err)
	}
	if _, ok := c.Cached("base", "b"); ok {
		t.Error("it was kept")
	}
	for _, n := range contents(t, c) {
		if strings.HasPrefix(n, ".") {
			t.Errorf("left behind: %s", n)
		}
	}
}

// TestCacheWritesNothingOutside is a master, or a user, that names other places.
func TestCacheWritesNothingOutside(t *testing.T) {
	s := newServer(t)
	dir := t.TempDir()
	c := NewCache(filepath.Join(dir, "cache"), s)
	for _, row := range [][2]string{{"base", "../x"}, {"..", "x"}, {"../..", "x"}, {"base", "/x"}, {"", "x"}, {"base", ""}, {"a/b", "x"}, {"base", "x\x00"}, {"base", `..\x`}} {
		if _, _, err := c.Fetch(t.Context(), row[0], row[1]); !errors.Is(err, ErrPath) {
			t.Errorf("%q of %q: %v", row[1], row[0], err)
		}
		if place, ok := c.Cached(row[0], row[1]); ok {
			t.Errorf("%q of %q is at %s", row[1], row[0], place)
		}
	}
	// a link within the cache that leads out of it
	outside := filepath.Join(dir, "outside")
	if err := os.MkdirAll(filepath.Join(dir, "cache", names), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "cache", names, "base")); err != nil {
		t.Fatal(err)
	}
	s.put(t, "a/x", "x")
	wantCopy(t, c, "a/x", "x") // the link has made room
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("written outside: %v, %v", left, err)
	}
}

// Two environments have a file of the same name, and one has directories whose names run
// together with those of the other: none is ever served for the other.
func TestSourcesShareNothing(t *testing.T) {
	base, dev := newServer(t), newServer(t)
	s := &server{Roots: NewRoots(map[string][]string{"base": {base.dir}, "dev": {dev.dir}}), dir: base.dir}
	c := NewCache(filepath.Join(t.TempDir(), "cache"), s)
	for name, text := range map[string]string{"app": "base", "x/app": "base x", "xapp": "base xapp"} {
		base.put(t, name, text)
		dev.put(t, name, "dev of "+name)
	}
	for range 2 { // once fetched, and once with all of them there
		for _, env := range []string{"base", "dev", "base"} {
			for name, want := range map[string]string{"app": "base", "x/app": "base x", "xapp": "base xapp"} {
				if env == "dev" {
					want = "dev of " + name
				}
				place, _, err := c.Fetch(t.Context(), env, name)
				if b, _ := os.ReadFile(place); err != nil || string(b) != want {
					t.Errorf("%s of %s is %q, %v; want %q", name, env, b, err, want)
				}
			}
		}
	}
}
