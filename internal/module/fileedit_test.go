package module

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/function"
)

func TestFilesAreEdited(t *testing.T) {
	const hosts = "# local\n127.0.0.1 localhost\n  server one\n  server two\n#ALL: PARANOID\n"
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for _, tt := range []struct {
		function string
		args     []any
		kwargs   map[string]any
		want     string // the file afterwards; hosts where it is ""
	}{
		{"file.replace", []any{"server", "node"}, nil, strings.ReplaceAll(hosts, "server", "node")},
		{"file.replace", []any{"server", "node", int64(1)}, nil, strings.Replace(hosts, "server", "node", 1)},
		{"file.replace", []any{`^  (\w+) (?P<n>\w+)$`, `\g<n> \1 $1`}, nil, "# local\n127.0.0.1 localhost\none server $1\ntwo server $1\n#ALL: PARANOID\n"},
		{"file.replace", []any{"SERVER", "x"}, map[string]any{"flags": []any{"IGNORECASE"}, "count": int64(1)}, strings.Replace(hosts, "server", "x", 1)},
		{"file.replace", []any{"nothing", "last"}, map[string]any{"append_if_not_found": true}, hosts + "last\n"},
		{"file.replace", []any{"nothing", "first"}, map[string]any{"prepend_if_not_found": true}, "first\n" + hosts},
		{"file.replace", []any{"nothing", "127.0.0.1 localhost"}, map[string]any{"append_if_not_found": true}, ""},
		{"file.replace", []any{"server", "node"}, map[string]any{"dry_run": true}, ""},
		{"file.replace", []any{"server", "node"}, map[string]any{"search_only": true}, ""},
		{"file.comment", []any{"127"}, nil, strings.Replace(hosts, "127", "#127", 1)},
		{"file.comment", []any{"^  server t"}, map[string]any{"char": "//"}, strings.Replace(hosts, "  server t", "//  server t", 1)},
		{"file.comment", []any{"localhost"}, nil, ""}, // not where the line begins
		{"file.uncomment", []any{"ALL: .*"}, nil, strings.Replace(hosts, "#ALL", "ALL", 1)},
		{"file.line", []any{"  server three"}, map[string]any{"mode": "ensure", "after": "server two"}, strings.Replace(hosts, "#ALL", "  server three\n#ALL", 1)},
		{"file.line", []any{"server two"}, map[string]any{"mode": "ensure", "after": "server one"}, ""},
		{"file.line", []any{"server"}, map[string]any{"mode": "delete"}, "# local\n127.0.0.1 localhost\n#ALL: PARANOID\n"},
		{"file.line", []any{"server 2"}, map[string]any{"mode": "replace", "match": "two"}, strings.Replace(hosts, "server two", "server 2", 1)},
		{"file.line", []any{"begin"}, map[string]any{"mode": "insert", "location": "start"}, "begin\n" + hosts},
		{"file.line", []any{"end"}, map[string]any{"mode": "insert", "location": "end"}, hosts + "end\n"},
		{"file.line", []any{"zero"}, map[string]any{"mode": "insert", "before": "server one"}, strings.Replace(hosts, "  server one", "  zero\n  server one", 1)},
		{"file.blockreplace", []any{"127", "#ALL", "new"}, nil, "# local\n127.0.0.1 localhost\nnew\n#ALL: PARANOID\n"},
		{"file.blockreplace", []any{"<<", ">>", "new"}, map[string]any{"append_if_not_found": true}, hosts + "<<\nnew\n>>\n"},
		{"file.sed", []any{"server (.*)", `\1/server`}, nil, "# local\n127.0.0.1 localhost\n  one/server\n  two/server\n#ALL: PARANOID\n"},
		{"file.sed", []any{"server", "x", "one"}, nil, strings.Replace(hosts, "server", "x", 1)},
	} {
		name := tt.function + repr(tt.args)
		if err := errors.Join(os.WriteFile(file, []byte(hosts), 0o640), os.Chmod(file, 0o640)); err != nil {
			t.Fatal(err)
		}
		os.Remove(file + ".bak")
		answer := good(t, nil, tt.function, tt.kwargs, append([]any{file}, tt.args...)...)
		got, err := os.ReadFile(file)
		if want := tt.want; err != nil || string(got) != want && (want != "" || string(got) != hosts) {
			t.Errorf("%s: %v, and the file is %q", name, err, got)
		}
		diff, isDiff := answer.(string)
		changed := string(got) != hosts
		if isDiff && changed && !strings.Contains(diff, "\n+") && !strings.Contains(diff, "\n-") {
			t.Errorf("%s answers %q", name, diff)
		}
		backup, err := os.ReadFile(file + ".bak")
		if wants := changed && tt.function != "file.line"; (err == nil) != wants || wants && string(backup) != hosts {
			t.Errorf("%s: the backup is %q, %v", name, backup, err)
		}
		same(t, name+": the mode", good(t, nil, "file.get_mode", nil, file), "0640")
	}
	bad(t, nil, "file.replace", "error parsing regexp", nil, file, "(", "x")
	bad(t, nil, "file.replace", "no such file", nil, file+"x", "a", "b")
	same(t, "missing", good(t, nil, "file.replace", map[string]any{"ignore_if_missing": true}, file+"x", "a", "b"), false)
	if err := os.WriteFile(file, []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	bad(t, nil, "file.line", "2 lines match before", map[string]any{"mode": "ensure", "before": "server"}, file, "x")
	bad(t, nil, "file.line", "the mode is", map[string]any{"mode": "upsert"}, file, "x")
	bad(t, nil, "file.blockreplace", "append_if_not_found=True", nil, file, "<<", ">>", "x")
	bad(t, nil, "file.blockreplace", "no line that ends it", nil, file, "127", ">>", "x")
	bad(t, nil, "file.sed", "sandbox", map[string]any{"flags": "e"}, file, "server", "touch "+dir+"/hacked")
	good(t, nil, "file.sed", nil, file, "server", "y/e;1e touch "+dir+"/hacked #")
	if _, err := os.Lstat(filepath.Join(dir, "hacked")); err == nil {
		t.Error("a script of sed has run a program")
	}
}

// A link stays a link, and a file with two names keeps both.
func TestEditsKeepNames(t *testing.T) {
	dir := t.TempDir()
	file, soft, hard := filepath.Join(dir, "f"), filepath.Join(dir, "soft"), filepath.Join(dir, "hard")
	if err := errors.Join(os.WriteFile(file, []byte("a\n"), 0o600), os.Symlink("f", soft), os.Link(file, hard)); err != nil {
		t.Fatal(err)
	}
	good(t, nil, "file.replace", map[string]any{"backup": false}, soft, "a", "b")
	for _, name := range []string{file, hard, soft} {
		same(t, name, good(t, nil, "file.read", nil, name), "b\n")
	}
	same(t, "link", good(t, nil, "file.is_link", nil, soft), true)
	same(t, "names", good(t, nil, "file.readdir", nil, dir), []any{".", "..", "f", "hard", "soft"})
}

// The owner and all bits of the mode stay, those too that a change of the owner takes away.
func TestEditsKeepOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners")
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := errors.Join(os.WriteFile(file, []byte("a\n"), 0o755), os.Chown(file, 65534, 65534), os.Chmod(file, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	good(t, nil, "file.replace", nil, file, "a", "b")
	for _, name := range []string{file, file + ".bak"} {
		same(t, name+": mode", good(t, nil, "file.get_mode", nil, name), "4755")
		same(t, name+": owner", good(t, nil, "file.get_uid", nil, name), 65534)
	}
}

func TestFilesAreWeighed(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"small": 10, "middle": 3000, "large": 1 << 20} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-50 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "small"), old, old); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		kwargs map[string]any
		want   []any
	}{
		{map[string]any{"size": "+2k"}, []any{"large", "middle"}},
		{map[string]any{"size": "-2k"}, []any{"small"}},
		{map[string]any{"size": "1m"}, []any{"large"}},
		{map[string]any{"size": "1k-10k"}, []any{"middle"}},
		{map[string]any{"mtime": "2d"}, []any{"small"}},
		{map[string]any{"mtime": "-1d12h"}, []any{"large", "middle"}},
		{map[string]any{"mtime": "2d", "size": "+1m"}, []any{}},
	} {
		tt.kwargs["type"] = "f"
		var want []any
		for _, w := range tt.want {
			want = append(want, filepath.Join(dir, w.(string)))
		}
		if want == nil {
			want = []any{}
		}
		same(t, fmt.Sprint(tt.kwargs), good(t, nil, "file.find", tt.kwargs, dir), want)
	}
	same(t, "diskusage", good(t, nil, "file.diskusage", nil, dir), 10+3000+1<<20)
	bad(t, nil, "file.find", "is not a size", map[string]any{"size": "much"}, dir)
	bad(t, nil, "file.find", "is not an age", map[string]any{"mtime": "long ago"}, dir)
	odd := filepath.Join(dir, "a $(touch ran); b")
	if err := os.WriteFile(odd, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	same(t, "exec", good(t, nil, "file.find", map[string]any{"name": "a *", "exec": "wc -c '{}'"}, dir), []any{"wc -c " + odd + ":\n1 " + odd + "\n"})
	if r := run(t, nil, "file.find", map[string]any{"name": "a *", "exec": "cat {}/x"}, dir); r.Retcode != 1 || !strings.Contains(fmt.Sprint(r.Return), "ot a directory") {
		t.Errorf("a command that fails: %v, return code %d", r.Return, r.Retcode)
	}
	bad(t, nil, "file.find", "is not a command", map[string]any{"exec": "'"}, dir)
	bad(t, &function.Host{Config: map[string]any{"disable_modules": []any{"cmd"}}}, "file.find", "disable_modules has the module cmd", map[string]any{"exec": "id"}, dir)
	lstat := good(t, nil, "file.lstat", nil, filepath.Join(dir, "middle")).(map[string]any)
	same(t, "st_size", lstat["st_size"], 3000)
	grep := good(t, nil, "file.grep", nil, "/etc/passwd", "^ROOT:", "-i").(map[string]any)
	if out, _ := grep["stdout"].(string); !strings.HasPrefix(out, "root:") {
		t.Errorf("grep: %v", grep)
	}
}

func TestPermissionsAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []map[string]any{{"mode": "0600"}, {}} {
		both := good(t, nil, "file.check_perms", map[string]any{"mode": int64(600)}, file, map[string]any{}).([]any)
		same(t, "changes", both[0].(map[string]any)["changes"], want)
	}
	same(t, "mode", good(t, nil, "file.get_mode", nil, file), "0600")
	for _, mode := range []any{int64(640), "0640", "640"} {
		same(t, "set_mode", good(t, nil, "file.set_mode", nil, file, mode), "0640")
	}
}
