package module

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFilesAreWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "motd")
	for _, tt := range []struct {
		function string
		lines    []any
		want     string
	}{
		{"file.append", []any{"b"}, "b\n"},
		{"file.append", []any{"c", int64(5)}, "b\nc\n5\n"},
		{"file.prepend", []any{[]any{"a", "a2"}}, "a\na2\nb\nc\n5\n"},
		{"file.write", []any{"x", "y"}, "x\ny\n"},
		{"file.write", nil, ""},
	} {
		if answer := good(t, nil, tt.function, nil, append([]any{file}, tt.lines...)...).(string); !strings.Contains(answer, file) {
			t.Errorf("%s answers %q", tt.function, answer)
		}
		same(t, tt.function, good(t, nil, "file.read", nil, file), tt.want)
	}
	if err := errors.Join(os.WriteFile(file, []byte("no end"), 0o600), os.Chmod(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	good(t, nil, "file.append", nil, file, "more")
	same(t, "append after a line without end", good(t, nil, "file.read", nil, file), "no end\nmore\n")
	same(t, "the mode stays", good(t, nil, "file.get_mode", nil, file), "0600")
	bad(t, nil, "file.write", "want text", nil, file, map[string]any{})
	bad(t, nil, "file.write", "want an absolute path", nil, "motd", "x")
}

func TestFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "l")
	if err := errors.Join(os.WriteFile(file, []byte("one\n\xff two\n"), 0o640), os.Symlink("f", link)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	const sum = "5da9e1ae2e1ea5a3d3d10a4a3c5ab4a6"
	md5 := good(t, nil, "cmd.run", nil, "md5sum < "+file+" | cut -d' ' -f1").(string)
	me := good(t, nil, "cmd.run", nil, "id -un")
	for _, tt := range []struct {
		function string
		args     []any
		want     any
	}{
		{"file.read", []any{file}, "one\n\xff two\n"},
		{"file.file_exists", []any{file}, true},
		{"file.file_exists", []any{dir}, false},
		{"file.file_exists", []any{file + "x"}, false},
		{"file.directory_exists", []any{dir}, true},
		{"file.directory_exists", []any{file}, false},
		{"file.is_link", []any{link}, true},
		{"file.is_link", []any{file}, false},
		{"file.readlink", []any{link}, "f"},
		{"file.readlink", []any{link, true}, file},
		{"file.path_exists_glob", []any{dir + "/?"}, true},
		{"file.path_exists_glob", []any{dir + "/x*"}, false},
		{"file.contains", []any{file, "one\n"}, true},
		{"file.contains", []any{file, "three"}, false},
		{"file.search", []any{file, "^one$"}, true},
		{"file.search", []any{file, "^two$"}, false},
		{"file.search", []any{file + "x", "a", true}, false},
		{"file.get_hash", []any{file, "md5"}, md5},
		{"file.check_hash", []any{file, "md5=" + strings.ToUpper(md5)}, true},
		{"file.check_hash", []any{file, "md5:" + sum}, false},
		{"file.get_mode", []any{file}, "0640"},
		{"file.get_mode", []any{link, false}, "0777"},
		{"file.get_uid", []any{file}, os.Geteuid()},
		{"file.get_gid", []any{file}, os.Getegid()},
		{"file.get_user", []any{file}, me},
		{"file.access", []any{file, "r"}, true},
		{"file.access", []any{file + "x", "f"}, false},
		{"file.readdir", []any{dir}, []any{".", "..", "f", "l"}},
		{"file.basename", []any{"a/b"}, "b"},
		{"file.dirname", []any{"a/b"}, "a"},
		{"file.join", []any{"/", "usr", "bin"}, "/usr/bin"},
	} {
		same(t, tt.function+repr(tt.args), good(t, nil, tt.function, nil, tt.args...), tt.want)
	}
	stats := good(t, nil, "file.stats", map[string]any{"hash_type": "md5"}, link).(map[string]any)
	for key, want := range map[string]any{"type": "file", "mode": "0640", "size": int64(10), "target": file, "sum": md5} {
		same(t, "stats "+key, stats[key], want)
	}
	same(t, "stats of the link", good(t, nil, "file.stats", map[string]any{"follow_symlinks": false}, link).(map[string]any)["type"], "link")
	bad(t, nil, "file.read", "no such file", nil, file+"x")
	bad(t, nil, "file.access", "the mode is f, r, w or x", nil, file, "q")
	bad(t, nil, "file.search", "error parsing regexp", nil, file, "(")
	bad(t, nil, "file.get_hash", "unknown hash type", nil, file, "crc")
	bad(t, nil, "file.read", "want an absolute path", nil, "etc/passwd")
}

func TestFilesAreChanged(t *testing.T) {
	dir := t.TempDir()
	p := func(name string) string { return filepath.Join(dir, name) }
	steps := []struct {
		function string
		args     []any
		kwargs   map[string]any
		want     any
	}{
		{"file.touch", []any{p("a")}, map[string]any{"mtime": 1e9}, true},
		{"file.set_mode", []any{p("a"), "4750"}, nil, "4750"},
		{"file.get_mode", []any{p("a")}, nil, "4750"},
		{"file.mkdir", []any{p("d/e")}, map[string]any{"mode": "0750"}, true},
		{"file.get_mode", []any{p("d/e")}, nil, "0750"},
		{"file.get_mode", []any{p("d")}, nil, "0755"},
		{"file.mkdir", []any{p("d/e")}, nil, true},
		{"file.makedirs", []any{p("m/n/")}, nil, true},
		{"file.directory_exists", []any{p("m/n")}, nil, true},
		{"file.rename", []any{p("a"), p("b")}, nil, true},
		{"file.symlink", []any{"/nosuch", p("s")}, nil, true},
		{"file.symlink", []any{"/nosuch", p("s")}, nil, true},
		{"file.symlink", []any{p("b"), p("s")}, map[string]any{"force": true}, true},
		{"file.readlink", []any{p("s")}, nil, p("b")},
		{"file.link", []any{p("b"), p("hard")}, nil, true},
		{"file.write", []any{p("b"), "text"}, nil, `Wrote 1 line to "` + p("b") + `"`},
		{"file.read", []any{p("hard")}, nil, "text\n"},
		{"file.truncate", []any{p("b"), int64(2)}, nil, true},
		{"file.read", []any{p("b")}, nil, "te"},
		{"file.copy", []any{p("b"), p("d/copy")}, nil, true},
		{"file.copy", []any{p("d"), p("d2")}, map[string]any{"recurse": true}, true},
		{"file.read", []any{p("d2/copy")}, nil, "te"},
		{"file.get_mode", []any{p("d2/e")}, nil, "0750"},
		{"file.rmdir", []any{p("d2/e")}, nil, true},
		{"file.remove", []any{p("d2")}, nil, true},
		{"file.remove", []any{p("d2")}, nil, false},
		{"file.remove", []any{p("s")}, nil, true},
		{"file.file_exists", []any{p("b")}, nil, true},
		{"file.chown", []any{p("b"), "", ""}, nil, nil},
	}
	for _, tt := range steps {
		same(t, tt.function+repr(tt.args), good(t, nil, tt.function, tt.kwargs, tt.args...), tt.want)
	}
	bad(t, nil, "file.remove", "the root directory is not removed", nil, "//")
	bad(t, nil, "file.remove", "want an absolute path", nil, "x")
	bad(t, nil, "file.rmdir", "is not a directory", nil, p("b"))
	bad(t, nil, "file.rmdir", "no such file", nil, p("nosuch"))
	bad(t, nil, "file.symlink", "file exists", nil, p("d"), p("b"))
	bad(t, nil, "file.copy", "recurse=True only", nil, p("d"), p("x"))
	bad(t, nil, "file.copy", "lie within each other", map[string]any{"recurse": true}, p("d"), p("d/x"))
	bad(t, nil, "file.copy", "lie within each other", map[string]any{"remove_existing": true}, p("d/copy"), p("d"))
	bad(t, nil, "file.set_mode", "octal digits", nil, p("b"), int64(489))
	bad(t, nil, "file.set_mode", "octal digits", nil, p("b"), "99")
	bad(t, nil, "file.chown", `user "nosuchuser" does not exist`, nil, p("b"), "nosuchuser", "root")
	bad(t, nil, "file.chgrp", `group "nosuchgroup" does not exist`, nil, p("b"), "nosuchgroup")
	if err := syscall.Mkfifo(p("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	same(t, "type of a pipe", good(t, nil, "file.stats", nil, p("fifo")).(map[string]any)["type"], "pipe")
}

func TestFilesAreFound(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o755), os.WriteFile(filepath.Join(dir, "a/x.log"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "a/b/y.log"), nil, 0o600), os.Symlink("x", filepath.Join(dir, "a/z.log"))); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		kwargs map[string]any
		want   []string
	}{
		"all":      {nil, []string{".", "a", "a/b", "a/b/y.log", "a/x.log", "a/z.log"}},
		"by name":  {map[string]any{"name": "*.log"}, []string{"a/b/y.log", "a/x.log", "a/z.log"}},
		"files":    {map[string]any{"type": "f"}, []string{"a/b/y.log", "a/x.log"}},
		"links":    {map[string]any{"type": "l"}, []string{"a/z.log"}},
		"folders":  {map[string]any{"type": "d"}, []string{".", "a", "a/b"}},
		"shallow":  {map[string]any{"maxdepth": 1}, []string{".", "a"}},
		"by regex": {map[string]any{"regex": "^[xy]"}, []string{"a/b/y.log", "a/x.log"}},
	} {
		var want []any
		for _, rel := range tt.want {
			want = append(want, filepath.Join(dir, rel))
		}
		same(t, name, good(t, nil, "file.find", tt.kwargs, dir), want)
	}
	bad(t, nil, "file.find", "the type is made of", map[string]any{"type": "q"}, dir)
	bad(t, nil, "file.find", "no such file", nil, dir+"/nosuch")
}

func TestOwnersAreChanged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners")
	}
	file := filepath.Join(t.TempDir(), "f")
	good(t, nil, "file.touch", nil, file)
	good(t, nil, "file.chown", nil, file, "nobody", "daemon")
	good(t, nil, "file.lchown", nil, file, "", "root")
	good(t, nil, "file.chgrp", nil, file, "daemon")
	stats := good(t, nil, "file.stats", nil, file).(map[string]any)
	if stats["user"] != "nobody" || stats["group"] != "daemon" {
		t.Errorf("stats = %v", stats)
	}
	same(t, "get_group", good(t, nil, "file.get_group", nil, file), "daemon")
}
