package module

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/test/deadline"
)

// grainHost is a minion whose grains are core ones under those of its file.
func grainHost(t testing.TB, core map[string]any) *function.Host {
	t.Helper()
	host := &function.Host{Paths: function.Paths{GrainsFile: filepath.Join(t.TempDir(), "grains")}}
	var mu sync.Mutex
	current := core
	host.Data = dataFunc(func() minionData { mu.Lock(); defer mu.Unlock(); return minionData{grains: current} })
	host.Services = &Services{Facts: refresher(func() error {
		text, err := os.ReadFile(host.GrainsFile)
		if err != nil {
			return err
		}
		var kept map[string]any
		if err := yaml.Unmarshal(text, &kept); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		current = maps.Clone(core)
		maps.Copy(current, kept)
		return nil
	})}
	return host
}

func TestGrainsAreRead(t *testing.T) {
	core := map[string]any{
		"os": "Debian", "os_family": "Debian", "id": "web1", "serialnumber": "12345678", "empty": "",
		"pkg": map[string]any{"apache": "httpd"}, "roles": []any{"web", "db"},
	}
	host := grainHost(t, core)
	table := map[string]any{"Deb*": map[string]any{"a": "x", "n": map[string]any{"p": "q"}}, "RedHat": "r", "db": "D", "base": map[string]any{"b": "y", "n": map[string]any{"r": "s"}}}
	tests := map[string]struct {
		function string
		args     []any
		kwargs   map[string]any
		want     any
	}{
		"get":                     {"grains.get", []any{"pkg:apache"}, nil, "httpd"},
		"get by another mark":     {"grains.get", []any{"pkg|apache"}, map[string]any{"delimiter": "|"}, "httpd"},
		"get missing":             {"grains.get", []any{"nosuch"}, nil, ""},
		"get with default":        {"grains.get", []any{"nosuch", []any{"x"}}, nil, []any{"x"}},
		"item":                    {"grains.item", []any{"os", "nosuch", "pkg:apache"}, nil, map[string]any{"os": "Debian", "pkg:apache": "httpd"}},
		"item sanitized":          {"grains.item", []any{"id", "serialnumber"}, map[string]any{"sanitize": true}, map[string]any{"id": "MINION.DOMAINNAME", "serialnumber": "123456XX"}},
		"items":                   {"grains.items", nil, nil, core},
		"ls":                      {"grains.ls", nil, nil, []any{"empty", "id", "os", "os_family", "pkg", "roles", "serialnumber"}},
		"has_value":               {"grains.has_value", []any{"pkg:apache"}, nil, true},
		"has_value of empty":      {"grains.has_value", []any{"empty"}, nil, false},
		"has_value of nothing":    {"grains.has_value", []any{"nosuch"}, nil, false},
		"equals":                  {"grains.equals", []any{"os", "Debian"}, nil, true},
		"equals another":          {"grains.equals", []any{"os", "RedHat"}, nil, false},
		"equals as text":          {"grains.equals", []any{"serialnumber", int64(12345678)}, nil, true},
		"equals a list":           {"grains.equals", []any{"roles", []any{"web", "db"}}, nil, true},
		"filter_by":               {"grains.filter_by", []any{table}, nil, table["Deb*"]},
		"filter_by list grain":    {"grains.filter_by", []any{table}, map[string]any{"grain": "roles"}, "D"},
		"filter_by default":       {"grains.filter_by", []any{table}, map[string]any{"grain": "nosuch", "default": "RedHat"}, "r"},
		"filter_by nothing":       {"grains.filter_by", []any{table}, map[string]any{"grain": "nosuch"}, nil},
		"filter_by base and more": {"grains.filter_by", []any{table}, map[string]any{"base": "base", "merge": map[string]any{"a": "z"}}, map[string]any{"a": "z", "b": "y", "n": map[string]any{"p": "q", "r": "s"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			same(t, tt.function, good(t, host, tt.function, tt.kwargs, tt.args...), tt.want)
		})
	}
	if host.Facts()["id"] != "web1" {
		t.Error("sanitizing changed the grains themselves")
	}
	bad(t, host, "grains.filter_by", "only dictionaries can be merged", map[string]any{"base": "RedHat"}, table)
}

func TestGrainsAreKept(t *testing.T) {
	host := grainHost(t, map[string]any{"os": "Debian", "ver": map[string]any{"a": int64(1)}})
	if err := os.WriteFile(host.GrainsFile, []byte("# by hand\nroles: [web]  # mine\nzone: eu\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := services(host).Facts.RefreshGrains(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := host.Facts()["roles"]
	steps := []struct {
		function string
		args     []any
		kwargs   map[string]any
		want     any
	}{
		{"grains.setval", []any{"key", "val"}, nil, map[string]any{"key": "val"}},
		{"grains.get", []any{"key"}, nil, "val"},
		{"grains.setvals", []any{map[string]any{"n": int64(5), "f": 1.5, "b": "5"}}, nil, map[string]any{"n": int64(5), "f": 1.5, "b": "5"}},
		{"grains.item", []any{"n", "f", "b"}, nil, map[string]any{"n": int64(5), "f": 1.5, "b": "5"}},
		{"grains.append", []any{"roles", "db"}, nil, map[string]any{"roles": []any{"web", "db"}}},
		{"grains.append", []any{"new", "x"}, nil, map[string]any{"new": []any{"x"}}},
		{"grains.append", []any{"zone", "us"}, map[string]any{"convert": true}, map[string]any{"zone": []any{"eu", "us"}}},
		{"grains.remove", []any{"roles", "web"}, nil, map[string]any{"roles": []any{"db"}}},
		{"grains.set", []any{"apps:myApp:port", int64(2209)}, nil, map[string]any{"apps": map[string]any{"myApp": map[string]any{"port": int64(2209)}}}},
		{"grains.set", []any{"apps:myApp:port", int64(80)}, nil, map[string]any{"apps": map[string]any{"myApp": map[string]any{"port": int64(80)}}}},
		{"grains.set", []any{"apps", "none"}, map[string]any{"force": true}, map[string]any{"apps": "none"}},
		{"grains.set", []any{"ver:b", int64(2)}, nil, map[string]any{"ver": map[string]any{"a": int64(1), "b": int64(2)}}},
		{"grains.delkey", []any{"ver:b"}, nil, map[string]any{"ver": map[string]any{"a": int64(1)}}},
		{"grains.delval", []any{"key"}, nil, map[string]any{"key": nil}},
		{"grains.delval", []any{"key"}, map[string]any{"destructive": true}, map[string]any{"key": nil}},
		{"grains.has_value", []any{"key"}, nil, false},
		{"grains.delkey", []any{"new"}, map[string]any{"force": true}, map[string]any{"new": nil}},
		{"grains.setval", []any{"n", nil}, map[string]any{"destructive": true}, map[string]any{"n": nil}},
		{"grains.ls", nil, nil, []any{"apps", "b", "f", "os", "roles", "ver", "zone"}},
	}
	for _, tt := range steps {
		same(t, tt.function+repr(tt.args), good(t, host, tt.function, tt.kwargs, tt.args...), tt.want)
	}
	same(t, "the map handed out before", before, []any{"web"})
	text, _ := os.ReadFile(host.GrainsFile)
	if !strings.Contains(string(text), "# by hand") {
		t.Errorf("the comment is gone:\n%s", text)
	}
	if info, _ := os.Stat(host.GrainsFile); info.Mode().Perm() != 0o640 {
		t.Errorf("the mode became %v", info.Mode())
	}
}

func TestGrainsRefusals(t *testing.T) {
	host := grainHost(t, map[string]any{"roles": []any{"web"}, "zone": "eu"})
	bad(t, host, "grains.append", "is not a list", nil, "zone", "us")
	bad(t, host, "grains.append", "already holds 'web'", nil, "roles", "web")
	bad(t, host, "grains.remove", "does not hold 'db'", nil, "roles", "db")
	bad(t, host, "grains.set", "HINT: force=True replaces it", nil, "roles", "web")
	bad(t, host, "grains.set", "HINT: force=True replaces it", nil, "zone", []any{"x"})
	bad(t, host, "grains.set", "a part of the path is not a dictionary", nil, "zone:a", "x")
	if _, err := os.Stat(host.GrainsFile); err == nil {
		t.Error("a refused change made the file")
	}
	bad(t, &function.Host{}, "grains.setval", "not available here", nil, "a", "b")
	for name, text := range map[string]string{"a list": "- a\n", "no YAML": "a: [\n"} {
		if err := os.WriteFile(host.GrainsFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		bad(t, host, "grains.setval", "grains file", nil, "a", "b")
		if left, _ := os.ReadFile(host.GrainsFile); string(left) != text {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestNewGrainsFileIsPrivate(t *testing.T) {
	host := grainHost(t, map[string]any{})
	good(t, host, "grains.setval", nil, "password", "x")
	if info, err := os.Stat(host.GrainsFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestGrainsOfManyJobsAreAllKept(t *testing.T) {
	host := grainHost(t, map[string]any{})
	var wg sync.WaitGroup
	for _, name := range strings.Split("abcdefghij", "") {
		wg.Go(func() { run(t, host, "grains.setval", nil, name, name) })
	}
	deadline.Call(t, wg.Wait, "wg")
	if err := services(host).Facts.RefreshGrains(t.Context()); err != nil || len(host.Facts()) != 10 {
		t.Errorf("kept %v, %v", host.Facts(), err)
	}
}

// TestGrainsKeepTheirTypes: what is set is read again as it was, also where YAML would take it for something else.
func TestGrainsKeepTheirTypes(t *testing.T) {
	host := grainHost(t, map[string]any{})
	for _, v := range []any{"0xdeadbeefdeadbeefdeadbeef", "010", "yes", 1e6, 1e20, int64(7), []any{"1:30", 2e6}} {
		good(t, host, "grains.setval", nil, "x", v)
		g, err := grain.Collect(t.Context(), grain.Options{GrainsFile: host.GrainsFile})
		if err != nil || !reflect.DeepEqual(g["x"], v) {
			t.Errorf("%#v is kept as %#v (%v)", v, g["x"], err)
		}
	}
}
