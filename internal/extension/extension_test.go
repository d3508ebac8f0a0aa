package extension

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/value"
)

func write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func script(t testing.TB, path, body string) { write(t, path, "#!/bin/sh\n"+body+"\n", 0o755) }

func newSet(t testing.TB, kind Kind, dirs ...string) (*Set, *bytes.Buffer) {
	log := new(bytes.Buffer)
	return New(kind, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), dirs...), log
}

func names(s *Set) (list []string) {
	for _, p := range s.Programs() {
		list = append(list, p.Name)
	}
	return list
}

const described = `case $1 in --describe) echo '{"doc": "A test.", "functions": {
  "echo": {"doc": "Say it.", "args": ["text", {"name": "times", "type": "int", "default": 1}]},
  "text": {"answer": "text", "timeout": 5}}}';;
echo) cat;;
text) printf 'no {json}\n\n';;
fail) echo '{"reason": "none"}'; exit 3;;
die) echo 'last words' >&2; exit 4;;
junk) echo 'no json';;
null) ;;
hang) sleep 1000 & echo $! > "$FILE"; wait;;
flood) while :; do echo 0123456789; done;;
env) printf '"%s %s"' "$SALT_CONFIG_DIR" "$SALT_JID";;
grains) echo '{"color": "red", "n": 1}';;
returner) cat > "$FILE";;
esac`

func TestPrograms(t *testing.T) {
	dir, second := t.TempDir(), t.TempDir()
	script(t, filepath.Join(dir, "one.sh"), "echo first")
	script(t, filepath.Join(second, "one"), "echo second")
	script(t, filepath.Join(second, "two.py"), "")
	write(t, filepath.Join(dir, "plain.txt"), "", 0o644)
	write(t, filepath.Join(dir, "not-a-name"), "", 0o755)
	write(t, filepath.Join(dir, "_private"), "", 0o755)
	write(t, filepath.Join(dir, ".hidden"), "", 0o755)
	write(t, filepath.Join(dir, "open"), "", 0o777)
	write(t, filepath.Join(dir, "sub", "three"), "", 0o755)
	if err := os.Symlink("/nonexistent", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, log := newSet(t, Modules, dir, second, filepath.Join(dir, "none"))
	if got := names(s); !slices.Equal(got, []string{"one", "two"}) || s.Find("one").Path != filepath.Join(dir, "one.sh") {
		t.Errorf("programs %q; want one of the first directory, and two", got)
	}
	if s.Find("three") != nil || (*Set)(nil).Find("one") != nil {
		t.Error("found what is not there")
	}
	if n := strings.Count(log.String(), "others may write it"); n != 1 || !strings.Contains(log.String(), "chmod go-w") {
		t.Errorf("an unsafe program was told %d times: %s", n, log)
	}
	if err := os.Chmod(second, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := names(s); !slices.Equal(got, []string{"one"}) {
		t.Errorf("programs %q of a directory that others may write", got)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(dir, "one.sh"), 65534, 0); err != nil {
			t.Fatal(err)
		}
		if got := names(s); len(got) != 0 {
			t.Errorf("programs %q of somebody else", got)
		}
	}
	script(t, filepath.Join(dir, "late"), "")
	if s.Find("late") == nil {
		t.Error("a program that came later is not found")
	}
}

// TestModulesOfPython: a file of that name is a module unless its first line says what runs
// it, held to the same owners and modes as programs, and for kinds that have such modules.
func TestModulesOfPython(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "plain.py"), "x = 1\n", 0o644)
	write(t, filepath.Join(dir, "marked.py"), "x = 1\n", 0o755)
	write(t, filepath.Join(dir, "empty.py"), "", 0o755)
	write(t, filepath.Join(dir, "open.py"), "", 0o666)
	write(t, filepath.Join(dir, "_beside.py"), "", 0o644)
	write(t, filepath.Join(dir, "old.pyc"), "", 0o644)
	script(t, filepath.Join(dir, "program.py"), "")
	for kind, want := range map[Kind][]string{
		Modules: {"empty", "marked", "plain", "program"}, Grains: {"empty", "marked", "plain", "program"},
		Returners: {"empty", "marked", "program"}, Runners: {"empty", "marked", "program"},
	} {
		s, _ := newSet(t, kind, dir)
		if got := names(s); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
		for _, p := range s.Programs() {
			if p.python != (p.Name != "program" && (kind == Modules || kind == Grains)) {
				t.Errorf("%s: %s is a module of Python: %v", kind, p.Name, p.python)
			}
		}
		if err := s.Passed("open"); !errors.Is(err, ErrUnsafe) && kind == Modules {
			t.Errorf("%s: what others may write: %v", kind, err)
		}
		if err := s.Passed("old"); !errors.Is(err, errBeside) {
			t.Errorf("%s: what is none: %v", kind, err)
		}
	}
	s, _ := newSet(t, Modules, filepath.Join(dir, "sub"), dir)
	for _, name := range []string{"nosuch", "plain", "../" + filepath.Base(dir) + "/old", "o*", ""} {
		if err := s.Passed(name); err != nil {
			t.Errorf("Passed(%q) = %v", name, err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := s.Passed("plain"); !errors.Is(err, ErrUnsafe) || len(names(s)) != 0 {
		t.Errorf("a directory that others may write: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	s, _ := newSet(t, Modules, dir)
	file := filepath.Join(dir, "m")
	script(t, file, described)
	d, err := s.Find("m").Describe(t.Context())
	want := Function{Doc: "Say it.", Args: []Arg{{Name: "text", Type: "any", Required: true}, {Name: "times", Type: "int", Default: int64(1)}}}
	if err != nil || d.Doc != "A test." || !reflect.DeepEqual(d.Functions["echo"], want) || d.Functions["text"].Answer != "text" {
		t.Fatalf("%+v, %v", d, err)
	}
	for name, row := range map[string]struct{ body, want string }{
		"code":      {"echo no >&2; exit 1", "exit code 1: no"},
		"no json":   {"echo hello", "is not a description"},
		"nothing":   {"", "is not a description"},
		"type":      {`echo '{"functions": {"a": {"args": [{"name": "x", "type": "thing"}]}}}'`, `there is no type "thing"`},
		"name":      {`echo '{"functions": {"a b": {}}}'`, `function "a b"`},
		"arg":       {`echo '{"functions": {"a": {"args": ["x y"]}}}'`, "not the name of an argument"},
		"twice":     {`echo '{"functions": {"a": {"args": ["x", "x"]}}}'`, "twice"},
		"order":     {`echo '{"functions": {"a": {"args": [{"name": "x", "default": null}, "y"]}}}'`, "follows one with a default"},
		"answer":    {`echo '{"functions": {"a": {"answer": "xml"}}}'`, "only json and text"},
		"timeout":   {`echo '{"functions": {"a": {"timeout": -1}}}'`, "not a time limit"},
		"too long":  {`while :; do echo 0123456789012345678901234567890123456789; done`, "exceeds its limit"},
		"no shell":  {"", "interpreter"},
		"the doc":   {`echo '{"doc": 1}'`, "is not a description"},
		"functions": {`echo '[]'`, "is not a description"},
	} {
		script(t, file, row.body)
		if name == "no shell" {
			write(t, file, "#!/nonexistent/sh\n", 0o755)
		}
		if _, err := s.Find("m").Describe(t.Context()); err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func TestDescribeAsksOnce(t *testing.T) {
	dir := t.TempDir()
	s, _ := newSet(t, Modules, dir)
	script(t, filepath.Join(dir, "m"), "echo x >> "+filepath.Join(dir, "count")+`; echo '{"functions": {"f": {}}}'`)
	for range 3 {
		if _, err := s.Find("m").Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "count")); string(b) != "x\n" {
		t.Errorf("asked %d times", len(b)/2)
	}
}

func TestCall(t *testing.T) {
	dir := t.TempDir()
	s, log := newSet(t, Modules, dir)
	script(t, filepath.Join(dir, "m"), described)
	p := s.Find("m")
	r := Request{ID: "web1", JID: "20261121113344286549", Args: []any{"a", int64(2)}, Grains: map[string]any{"os": "Debian"}, Pillar: map[string]any{"p": "s3cret"}}
	for word, row := range map[string]struct {
		value any
		code  int
		err   string
	}{
		"echo": {value: map[string]any{"fun": "echo", "id": "web1", "jid": "20261121113344286549", "args": []any{"a", int64(2)}, "kwargs": map[string]any{},
			"grains": map[string]any{"os": "Debian"}, "pillar": map[string]any{"p": "s3cret"}, "options": map[string]any{}}},
		"fail": {value: map[string]any{"reason": "none"}, code: 3},
		"die":  {code: 4, err: "m: exit code 4: last words"},
		"junk": {err: "answered what is not JSON"},
		"null": {},
		"env":  {value: "/etc/salt 20261121113344286549"},
	} {
		a, err := p.Call(t.Context(), word, Function{}, r, Env{ConfigDir: "/etc/salt", JID: r.JID})
		if plain, bad := value.Plain(a.Value); bad == nil {
			a.Value = plain // what travels
		}
		if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) || a.Code != row.code || !reflect.DeepEqual(a.Value, row.value) {
			t.Errorf("%s: %#v, %v; want %#v", word, a, err, row)
		}
	}
	if a, err := p.Call(t.Context(), "text", Function{Answer: "text"}, r, Env{}); err != nil || a.Value != "no {json}" {
		t.Errorf("text: %#v, %v", a, err)
	}
	if !strings.Contains(log.String(), `text="last words"`) || strings.Contains(log.String(), "s3cret") {
		t.Errorf("the log: %s", log)
	}
}

// gone waits for the end of the process whose number stands in file.
func gone(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); ; {
		status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(b)) + "/stat")
		if err != nil || strings.Contains(string(status), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("what it started is left behind")
		}
	}
}

func TestCallEndsWithAllThatItStarted(t *testing.T) {
	dir := t.TempDir()
	s, _ := newSet(t, Modules, dir)
	script(t, filepath.Join(dir, "m"), described)
	child := filepath.Join(dir, "child")
	short := 0.5
	if _, err := s.Find("m").Call(t.Context(), "hang", Function{Timeout: &short}, Request{}, Env{Extra: []string{"FILE=" + child}}); err == nil || !strings.Contains(err.Error(), "ran longer than 500ms") {
		t.Errorf("after its time: %v", err)
	}
	gone(t, child)
	ctx, cancel := context.WithCancelCause(t.Context())
	killed := errors.New("killed")
	if err := os.Remove(child); err != nil {
		t.Fatal(err)
	}
	go func() {
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
			if b, _ := os.ReadFile(child); len(b) > 1 {
				break
			}
		}
		cancel(killed)
	}()
	if _, err := s.Find("m").Call(ctx, "hang", Function{}, Request{}, Env{Extra: []string{"FILE=" + child}}); !errors.Is(err, killed) {
		t.Errorf("after the end of its job: %v", err)
	}
	gone(t, child)
}

func TestCollect(t *testing.T) {
	dir := t.TempDir()
	s, log := newSet(t, Grains, dir)
	script(t, filepath.Join(dir, "a"), described)
	script(t, filepath.Join(dir, "b"), `echo '{"n": 2}'`)
	script(t, filepath.Join(dir, "c"), `echo '[1]'`)
	script(t, filepath.Join(dir, "d"), `echo '{"d": 1}'; exit 1`)
	if got, want := s.Collect(t.Context(), Request{}, Env{}), map[string]any{"color": "red", "n": int64(2)}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n := strings.Count(log.String(), "a program of grains has failed"); n != 2 {
		t.Errorf("%d were told: %s", n, log)
	}
}

func TestReturn(t *testing.T) {
	dir := t.TempDir()
	s, _ := newSet(t, Returners, dir)
	script(t, filepath.Join(dir, "a"), described)
	script(t, filepath.Join(dir, "b"), "exit 1")
	file := filepath.Join(dir, "got")
	r := Request{ID: "web1", Return: map[string]any{"fun": "test.ping", "return": true}}
	if err := s.Find("a").Return(t.Context(), r, Env{Extra: []string{"FILE=" + file}}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(file); !strings.Contains(string(b), `"return":{"fun":"test.ping","return":true}`) {
		t.Errorf("it got %s", b)
	}
	if err := s.Find("b").Return(t.Context(), r, Env{}); err == nil {
		t.Error("a failure is taken for success")
	}
}

func TestSync(t *testing.T) {
	base, dev, dir := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "x", "modules")
	source := fileserver.NewRoots(map[string][]string{"base": {base}, "dev": {dev}})
	cache := fileserver.NewCache(t.TempDir(), source)
	sync := func(want ...string) {
		t.Helper()
		got, err := Sync(t.Context(), cache, Modules, []string{"base", "dev"}, dir)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("synchronised %q, %v; want %q", got, err, want)
		}
	}
	sync()
	script(t, filepath.Join(base, "_modules", "one.sh"), "echo base")
	script(t, filepath.Join(dev, "_modules", "one.sh"), "echo dev")
	script(t, filepath.Join(dev, "_modules", "two"), "echo dev")
	write(t, filepath.Join(base, "_modules", "lib", "data.txt"), "data", 0o644)
	write(t, filepath.Join(base, "other.txt"), "other", 0o644)
	sync("modules.lib.data", "modules.one", "modules.two")
	sync()
	s, _ := newSet(t, Modules, dir)
	if got := names(s); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("programs %q", got)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "one.sh")); !strings.Contains(string(b), "echo base") {
		t.Errorf("one.sh is not that of base: %s", b)
	}
	script(t, filepath.Join(base, "_modules", "one.sh"), "echo changed")
	sync("modules.one")
	if err := os.Chmod(filepath.Join(base, "_modules", "one.sh"), 0o644); err != nil {
		t.Fatal(err)
	}
	sync("modules.one")
	// a directory where there was a file, and what is gone goes
	if err := os.RemoveAll(filepath.Join(dev, "_modules", "two")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dev, "_modules", "two", "x"), "x", 0o644)
	if err := os.RemoveAll(filepath.Join(base, "_modules", "lib")); err != nil {
		t.Fatal(err)
	}
	sync("modules.two.x")
	if err := os.WriteFile(filepath.Join(dir, "stray"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	sync()
	left := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		left[strings.TrimPrefix(path, dir)] = true
		return err
	})
	if want := map[string]bool{"": true, "/one.sh": true, "/two": true, "/two/x": true}; err != nil || !maps.Equal(left, want) {
		t.Errorf("left: %v, %v", left, err)
	}
}

func FuzzParseDescription(f *testing.F) {
	f.Add(`{"doc": "A.", "functions": {"f": {"args": ["a", {"name": "b", "type": "int", "default": 1}]}}}`)
	f.Add(`{"functions": {"f": {"args": [{"name": 1}]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDescription([]byte(text))
		if err != nil && (d.Doc != "" || d.Functions != nil) {
			t.Errorf("%q: a description with the error %v", text, err)
		}
		for name, one := range d.Functions {
			if one.check("x."+name) != nil {
				t.Errorf("%q: function %q does not hold", text, name)
			}
		}
	})
}
