package pillar

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var web1 = target.Facts{ID: "web1", Grains: map[string]any{"os": "Debian", "roles": []any{"web"}}}

func TestCompile(t *testing.T) {
	base := tree(t, map[string]string{
		"top.sls": `
base:
  '*': [common]
  'web*': [web.server, web]
  'G@os:Debian and not db*': [debian]
  'os:RedHat': [{match: grain}, redhat]
  'roles:web': [{match: grain}, byrole]
  db1: [secret]
prod:
  '*': [secret]
`,
		"common.sls":     "a: {x: 1, y: [1, 2]}\nkeep: true\nwhen: 2026-11-21\n1: one\nzeros: 010\nsixties: 1:30\n",
		"web/server.sls": "include: [extra]\na: {y: [3], z: 1.0}\n",
		"web/init.sls":   "web: init\n",
		"extra.sls":      "extra: yes\na: {x: 2}\n",
		"debian.sls":     "apt: on\n", "byrole.sls": "role: web\n",
		"redhat.sls": "dnf: on\n", "secret.sls": "password: geheim\n",
	})
	prod := tree(t, map[string]string{"top.sls": "prod:\n  web1: [p]\nbase:\n  '*': [p2]\n", "p.sls": "env: prod\nweb: prod\n", "p2.sls": "no: no\n"})
	got, err := Compile(web1, Options{Roots: map[string][]string{"prod": {prod}, "base": {filepath.Join(base, "nosuch"), base}}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"a": map[string]any{"x": int64(2), "y": []any{int64(3)}, "z": 1.0}, "keep": true, "when": "2026-11-21", "1": "one", "zeros": int64(10), "sixties": int64(90),
		"web": "prod", "extra": true, "apt": true, "role": "web", "env": "prod",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestCompileRefuses(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no such file":             {"top.sls": "base:\n  '*': [nosuch]\n"},
		"traversal":                {"top.sls": "base:\n  '*': ['../../etc/passwd']\n"},
		"dots":                     {"top.sls": "base:\n  '*': ['....etc']\n"},
		"list in the top file":     {"top.sls": "- a\n"},
		"text instead of a list":   {"top.sls": "base:\n  '*': common\n"},
		"unknown kind":             {"top.sls": "base:\n  '*': [{match: bogus}, a]\n"},
		"bad target":               {"top.sls": "base:\n  'web* and (': [a]\n", "a.sls": "a: 1"},
		"pillar chosen by pillar":  {"top.sls": "base:\n  'I@a:1': [a]\n", "a.sls": "a: 1"},
		"broken YAML":              {"top.sls": "base:\n  '*': [a]\n", "a.sls": "a: [1\n"},
		"template":                 {"top.sls": "base:\n  '*': [a]\n", "a.sls": "{% if true %}\na: 1\n{% endif %}\n"},
		"another renderer":         {"top.sls": "base:\n  '*': [a]\n", "a.sls": "#!py\n"},
		"a circle":                 {"top.sls": "base:\n  '*': [a]\n", "a.sls": "include: [b]\n", "b.sls": "include: [a]\n"},
		"a tag that makes objects": {"top.sls": "base:\n  '*': [a]\n", "a.sls": "a: !!python/object/apply:os.system [geheim]\n"},
		"a tag of somebody's own":  {"top.sls": "base:\n  '*': [a]\n", "a.sls": "a: !evil geheim\n"},
		"a list for a pillar":      {"top.sls": "base:\n  '*': [a]\n", "a.sls": "[geheim]\n"},
	} {
		got, err := Compile(web1, Options{Roots: map[string][]string{"base": {tree(t, files)}}})
		if err == nil || got != nil {
			t.Errorf("%s: %v, %v; want an error and no pillar", name, got, err)
		} else if strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: the error shows a value: %v", name, err)
		}
	}
}

func TestLinksDoNotLeadOut(t *testing.T) {
	outside := tree(t, map[string]string{"s.sls": "password: geheim\n"})
	dir := tree(t, map[string]string{"top.sls": "base:\n  '*': [link]\n"})
	if err := os.Symlink(filepath.Join(outside, "s.sls"), filepath.Join(dir, "link.sls")); err != nil {
		t.Fatal(err)
	}
	if got, err := Compile(web1, Options{Roots: map[string][]string{"base": {dir}}}); err == nil {
		t.Errorf("a link out of the root was read: %v", got)
	}
}

func TestNoTopFile(t *testing.T) {
	got, err := Compile(web1, Options{Roots: map[string][]string{"base": {t.TempDir(), "/nonexistent"}}})
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v; want an empty pillar", got, err)
	}
}

func TestErrorNamesThePlace(t *testing.T) {
	dir := tree(t, map[string]string{"top.sls": "base:\n  '*':\n    - nosuch\n"})
	_, err := Compile(web1, Options{Roots: map[string][]string{"base": {dir}}})
	var e *Error
	if !errors.As(err, &e) || e.Line != 3 || e.File != filepath.Join(dir, "top.sls") {
		t.Errorf("%v, want top.sls:3", err)
	}
}

// TestShown: a minion is told the place of a mistake and what is wrong, but not how others are named.
func TestShown(t *testing.T) {
	for name, c := range map[string]struct{ top, want, hidden string }{
		"a file that is missing": {"base:\n  '*': [nosuch]\n", `top.sls:2: there is no file for "nosuch"`, "\x00"},
		"a target of others":     {"base:\n  '*': []\n  'db1 and (': [a]\n", "top.sls:3: the log of the master", "db1"},
		"a kind of target":       {"base:\n  '*': []\n  db1: [{match: db2}]\n", "top.sls:3: the log of the master", "db"},
	} {
		_, err := Compile(web1, Options{Roots: map[string][]string{"base": {tree(t, map[string]string{"top.sls": c.top})}}})
		if shown := Shown(err); !strings.Contains(shown, c.want) || strings.Contains(shown, c.hidden) {
			t.Errorf("%s: told %q of %v", name, shown, err)
		}
	}
	if shown := Shown(errors.New("read geheim")); strings.Contains(shown, "geheim") {
		t.Errorf("told %q of an error that has no place", shown)
	}
}

// TestTemplates: what is a template is rendered before it is read, and a mistake has the place that
// the renderer tells.
func TestTemplates(t *testing.T) {
	render := func(text string, id salt.MinionID, grains map[string]any) (string, error) {
		if strings.Contains(text, "bad") {
			return "", &lineError{7}
		}
		return strings.ReplaceAll(text, "{{ me }}", string(id)+grains["os"].(string)), nil
	}
	compile := func(text string) (map[string]any, error) {
		dir := tree(t, map[string]string{"top.sls": "base:\n  '*': [a]\n", "a.sls": text})
		return Compile(web1, Options{Roots: map[string][]string{"base": {dir}}, Render: render})
	}
	for in, want := range map[string]any{
		"a: {{ me }}\n":                     "web1Debian",
		"#!jinja|yaml\na: {{ me }}\n":       "web1Debian",
		"#!yaml\na: '{{ me }}'\n":           "{{ me }}",
		"a: {bad: 1}\n":                     map[string]any{"bad": int64(1)},
		"# {{ me }} is rendered\na: text\n": "text",
	} {
		if got, err := compile(in); err != nil || !reflect.DeepEqual(got["a"], want) {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{"a: {{ bad }}": "a.sls:7: wrong", "a: {{ me }}\nb: [": "a.sls:2: rendered, as which it has that line: ", "#!py\n": "a.sls:1: only templates and YAML"} {
		if _, err := compile(in); err == nil || !strings.Contains(Shown(err), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

// What a minion says of itself chooses no file: neither by a line break in a grain, nor in the
// top file.
func TestGrainsIncludeNothing(t *testing.T) {
	const grain = "x\ninclude: [secret]"
	reported := target.Facts{ID: "web1", Grains: map[string]any{"motd": grain}}
	render := func(text string, id salt.MinionID, grains map[string]any) (string, error) {
		motd, _ := grains["motd"].(string)
		for begin, end := range map[string]string{"{% if db1 %}": "{% endif %}", "{#": "#}"} { // this is web1
			if before, rest, found := strings.Cut(text, begin); found {
				_, after, _ := strings.Cut(rest, end)
				text = before + after
			}
		}
		return strings.NewReplacer("{{ motd }}", motd, "{{ id }}", string(id), "{{ role }}", "secret", "{% if x %}", "", "{% endif %}", "").Replace(text), nil
	}
	compile := func(top, text string) (map[string]any, error) {
		dir := tree(t, map[string]string{"top.sls": top, "a.sls": text, "secret.sls": "password: s3cret\n", "web1.sls": "own: 1\n"})
		return Compile(reported, Options{Roots: map[string][]string{"base": {dir}}, Render: render})
	}
	const all = "base:\n  '*': [a]\n"
	for text, want := range map[string]string{
		"motd: {{ motd }}\n":                      "names literally",
		"secret: 1\nmotd: {{ motd }}\n":           "names literally",
		"motd: {{ motd }}\n# include: [secret]\n": "names literally",
		"include: [{{ id }}]\n":                   "names literally",
		"include:\n  - web1\n\n# of all\n{% if x %}\n  - secret\n{% endif %}\n":       "",
		"include: ['web1', \"secret\"]\nmotd: text {{ id }}\n":                        "",
		"include: [web1, {% if x %}secret{% endif %}] # {{ id }}\n":                   "",
		"include:\n  - web1\n  - secret\n{% if x %}motd: text{% endif %}\n":           "",
		"{% if db1 %}\ninclude: [secret]\n{% endif %}\nmotd: {{ motd }}\n":            "names literally",
		"include:\n  - web1\n{% if db1 %}\n  - secret\n{% endif %}\n  - {{ role }}\n": "names literally",
		"include: [web1, {{ role }}] # not secret\n":                                  "names literally",
		"{#\ninclude: [secret]\n#}\nmotd: {{ motd }}\n":                               "names literally",
	} {
		got, err := compile(all, text)
		if want == "" && (err != nil || got["own"] == nil || got["password"] == nil) || want != "" && (err == nil || !strings.Contains(Shown(err), want) || got["password"] != nil) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if motd, _ := got["motd"].(string); motd != "" && !slices.Contains([]string{"text", "text web1"}, motd) {
			t.Errorf("%q: the other value is %q", text, motd)
		}
	}
	if got, err := compile("base:\n  '*': [web1]\n  'db1{{ motd }}': [secret]\n", "{}"); err != nil || got["password"] != nil || got["own"] == nil {
		t.Errorf("a top file: %v, %v", got, err)
	}
}

type lineError struct{ line int }

func (e *lineError) Error() string                   { return "not shown" }
func (e *lineError) AtLine() (line int, text string) { return e.line, "wrong" }
