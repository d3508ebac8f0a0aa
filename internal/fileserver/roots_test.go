package fileserver

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// tree makes files below a new folder; a content that begins with -> is a symbolic
// link, | a pipe.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(content, "->"); link {
			err = os.Symlink(to, file)
		} else if content == "|" {
			err = syscall.Mkfifo(file, 0o644)
		} else {
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGet(t *testing.T) {
	first := tree(t, map[string]string{"a": "first", "sub/b": "b", "link": "->sub/b"})
	second := tree(t, map[string]string{"a": "second", "c": "c", "%2e%2e/x": "a name like others"})
	r := NewRoots(map[string][]string{"base": {first, second, filepath.Join(first, "none")}, "dev": {second}})
	for _, row := range []struct{ env, path, want string }{
		{"base", "a", "first"}, {"dev", "a", "second"}, {"base", "sub/b", "b"}, {"base", "c", "c"}, {"base", "link", "b"},
		{"base", "%2e%2e/x", "a name like others"},
	} {
		var b bytes.Buffer
		f, err := r.Get(t.Context(), row.env, row.path, "", &b)
		if err != nil || b.String() != row.want || f.Path != row.path || f.Size != int64(len(row.want)) || len(f.SHA256) != 64 {
			t.Errorf("%s of %s: %q, %+v, %v; want %q", row.path, row.env, b.String(), f, err, row.want)
		}
		b.Reset()
		if again, err := r.Get(t.Context(), row.env, row.path, f.SHA256, &b); err != nil || b.Len() != 0 || again.SHA256 != f.SHA256 {
			t.Errorf("%s, which the caller has: %q, %+v, %v", row.path, b.String(), again, err)
		}
	}
	files, err := r.List(t.Context(), "base")
	names := []string{}
	for _, f := range files {
		names = append(names, f.Path)
	}
	if want := []string{"%2e%2e/x", "a", "c", "link", "sub/b"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("list: %q, %v; want %q", names, err, want)
	}
	for env, want := range map[string]error{"nosuch": ErrNotFound, "../base": ErrPath} {
		if none, err := r.List(t.Context(), env); !errors.Is(err, want) || len(none) != 0 {
			t.Errorf("list of %q: %v, %v; want %v", env, none, err, want)
		}
	}
}

// TestNothingOutsideIsOpened is the attack with a path.
func TestNothingOutsideIsOpened(t *testing.T) {
	outside := tree(t, map[string]string{"secret": "secret", "base/x": "secret"})
	root := tree(t, map[string]string{
		"in": "in", "sub/in": "in", "abs": "->" + outside + "/secret", "out": "->" + outside, "up": "->../" + filepath.Base(outside) + "/secret",
		"loop": "->loop", "pipe": "|", "dangling": "->nothing", "etc": "->/etc/passwd",
	})
	r := NewRoots(map[string][]string{"base": {root}})
	for name, want := range map[string]error{
		"": ErrPath, ".": ErrPath, "..": ErrPath, "/": ErrPath, "../secret": ErrPath, "sub/../in": ErrPath, "sub/../../secret": ErrPath, "./in": ErrPath,
		"sub//in": ErrPath, "in/": ErrPath, outside + "/secret": ErrPath, "/etc/passwd": ErrPath, "in\x00": ErrPath, "in\x00/../../secret": ErrPath,
		`..\secret`: ErrPath, `sub\..\..\secret`: ErrPath, "in\n": ErrPath, "\xff": ErrPath, strings.Repeat("a/", 600) + "a": ErrPath,
		"%2e%2e/secret": ErrNotFound, "%2e%2e%2fsecret": ErrNotFound, "..%2fsecret": ErrNotFound, "%00": ErrNotFound, "．．/secret": ErrNotFound,
		"abs": ErrNotFound, "out/secret": ErrNotFound, "up": ErrNotFound, "loop": ErrNotFound, "pipe": ErrNotFound, "dangling": ErrNotFound,
		"etc": ErrNotFound, "sub": ErrNotFound, "in/x": ErrNotFound, "~/x": ErrNotFound, "file:///etc/passwd": ErrPath,
	} {
		var b bytes.Buffer
		if _, err := r.Get(t.Context(), "base", name, "", &b); !errors.Is(err, want) || b.Len() > 0 {
			t.Errorf("Get(%q) = %q, %v; want %v", name, b.String(), err, want)
		}
		if _, err := r.Stat(t.Context(), "base", name); !errors.Is(err, want) {
			t.Errorf("Stat(%q): %v, want %v", name, err, want)
		}
	}
	for _, env := range []string{"", ".", "..", "../base", "/", "base/", "base/..", "a/b", "base\x00"} {
		if _, err := r.Get(t.Context(), env, "in", "", new(bytes.Buffer)); !errors.Is(err, ErrPath) {
			t.Errorf("environment %q: %v", env, err)
		}
	}
	files, err := r.List(t.Context(), "base")
	if err != nil || len(files) != 2 {
		t.Errorf("list: %+v, %v; want in and sub/in only", files, err)
	}
}

func TestSumsFollowTheContent(t *testing.T) {
	dir := tree(t, map[string]string{"a": "one"})
	r := NewRoots(map[string][]string{"base": {dir}})
	seen := map[string]bool{}
	for _, content := range []string{"one", "two", "thr", "fou"} {
		if err := os.WriteFile(filepath.Join(dir, "a"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := r.Stat(t.Context(), "base", "a")
		if err != nil || seen[f.SHA256] {
			t.Fatalf("%q has a sum that was seen: %+v, %v", content, f, err)
		}
		seen[f.SHA256] = true
	}
}

func FuzzCheckPath(f *testing.F) {
	for _, s := range []string{"a", "a/b", "../a", "/a", "a/../b", "a\x00", `a\b`, "%2e%2e", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckPath(name) != nil {
			return
		}
		if !filepath.IsLocal(name) || !fs.ValidPath(name) || filepath.Clean(name) != name || strings.ContainsAny(name, "\x00\\") {
			t.Errorf("%q is taken for a path below a root", name)
		}
	})
}
