package returner

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/order"
)

var sample = Return{
	ID: "web1", JID: "20261121113344286549", Fun: "cmd.run_all", Args: []any{"check_procs -w 150"},
	Return: map[string]any{"stdout": "OK", "retcode": int64(0)}, Retcode: int64(0), Success: true,
}

const sampleJSON = `{"fun":"cmd.run_all","fun_args":["check_procs -w 150"],"id":"web1","jid":"20261121113344286549",` +
	`"retcode":0,"return":{"retcode":0,"stdout":"OK"},"success":true}`

func sameJSON(t *testing.T, what, got string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%s: %q: %v", what, got, err)
	}
	if err := json.Unmarshal([]byte(sampleJSON), &w); err != nil || !reflect.DeepEqual(g, w) {
		t.Errorf("%s: %s, want %s", what, got, sampleJSON)
	}
}

func host(t *testing.T, config map[string]any) *Host {
	return &Host{ID: "web1", Config: config, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func TestTable(t *testing.T) {
	order.Check(t, "returners", Names(nil))
	for _, r := range table {
		if r.Doc == "" || r.open == nil {
			t.Errorf("%s lacks its doc or its code", r.Name)
		}
	}
}

func TestOpen(t *testing.T) {
	h := host(t, map[string]any{"http.url": "ftp://x"})
	h.Fire = func(context.Context, string, any) error { return nil }
	h.Disabled = []string{"syslog"}
	for name, row := range map[string]struct {
		names []string
		o     Options
		want  string // a part of the error
		n     int
	}{
		"none":            {nil, Options{}, "", 0},
		"empty":           {[]string{"", " , "}, Options{}, "", 0},
		"each once":       {[]string{"local,rawfile_json", "local"}, Options{}, "", 2},
		"a tag":           {[]string{"master_bus"}, Options{Tag: "t"}, "", 1},
		"no tag":          {[]string{"master_bus"}, Options{}, "returner master_bus: there is no tag", 0},
		"not its tag":     {[]string{"master_bus"}, Options{Tag: "salt/job/x"}, "belongs to the master", 0},
		"unknown":         {[]string{"local", "redis"}, Options{}, `there is no such returner: "redis"`, 0},
		"not all of them": {[]string{"master"}, Options{}, `there is no such returner: "master"`, 0},
		"disabled":        {[]string{"local, syslog"}, Options{}, `there is no such returner: "syslog"`, 0},
		"bad setting":     {[]string{"http"}, Options{}, "not the address of a webhook", 0},
	} {
		s, err := Open(row.names, row.o, h)
		if len(s.ready) != row.n || (err == nil) != (row.want == "") || err != nil && (!strings.Contains(err.Error(), row.want) || salt.Hint(err) == "") {
			t.Errorf("%s: %d ready, %v (hint %q); want %d, %q", name, len(s.ready), err, salt.Hint(err), row.n, row.want)
		}
	}
	if _, err := Open([]string{"master_bus"}, Options{Tag: "t"}, host(t, nil)); err == nil {
		t.Error("master_bus without a way to the master is ready")
	}
}

func TestMasterBus(t *testing.T) {
	for name, row := range map[string]struct{ option, setting, want string }{
		"option": {"monitoring", "", "monitoring"}, "setting": {"", "checks", "checks"}, "option wins": {"monitoring", "checks", "monitoring"},
	} {
		var tag string
		var data any
		h := host(t, map[string]any{"master_bus.tag": row.setting})
		h.Fire = func(_ context.Context, to string, d any) error { tag, data = to, d; return nil }
		s, err := Open([]string{"master_bus"}, Options{Tag: row.option}, h)
		if err != nil {
			t.Fatal(err)
		}
		s.Late(t.Context(), sample)
		if tag != "" {
			t.Errorf("%s: it was fired late", name)
		}
		s.Early(t.Context(), sample)
		if tag != row.want || !reflect.DeepEqual(data, sample.Data()) {
			t.Errorf("%s: fired %v under %q, want %q", name, data, tag, row.want)
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	s, err := Open([]string{"rawfile_json"}, Options{}, host(t, map[string]any{"rawfile_json.filename": path}))
	if err != nil {
		t.Fatal(err)
	}
	s.Early(t.Context(), sample)
	s.Late(t.Context(), sample)
	s.Late(t.Context(), sample)
	b, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if err != nil || len(lines) != 2 {
		t.Fatalf("%q, %v; want two lines", b, err)
	}
	sameJSON(t, "second line", lines[1])
}

func TestWebhook(t *testing.T) {
	got := make(chan string, 1)
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		w.WriteHeader(code)
		got <- q.Method + " " + q.Header.Get("Content-Type") + " " + string(b)
	}))
	defer server.Close()
	send, err := openHTTP(host(t, map[string]any{"http.url": server.URL}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context(), sample); err != nil {
		t.Fatal(err)
	}
	method, body, _ := strings.Cut(deadline.Receive(t, got, "got"), "json ")
	if method != "POST application/" {
		t.Errorf("asked with %q", method)
	}
	sameJSON(t, "posted", body)
	code = http.StatusBadGateway
	if err := send(t.Context(), sample); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("a webhook that fails: %v", err)
	}
	deadline.Receive(t, got, "got")
}

// One that fails keeps neither the others nor the job from going on.
func TestFailure(t *testing.T) {
	reached := false
	h := host(t, map[string]any{"rawfile_json.filename": t.TempDir()}) // a folder
	h.Fire = func(context.Context, string, any) error { return errors.New("refused") }
	s, err := Open([]string{"master_bus,rawfile_json"}, Options{Tag: "t"}, h)
	if err != nil {
		t.Fatal(err)
	}
	s.ready = append(s.ready, ready{&Returner{Name: "last"}, func(context.Context, Return) error { reached = true; return nil }, "", false})
	s.Early(t.Context(), sample)
	s.Late(t.Context(), sample)
	if !reached {
		t.Error("after one that failed the next was not asked")
	}
}

// TestManual holds doc/returners.md to the table.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../doc/returners.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names(nil) {
		if !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("doc/returners.md has no row for %s", name)
		}
	}
}

// TestOwnReturner is a program that takes returns, beside the built-in ones, which
// stay what they are.
func TestOwnReturner(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mine", "local"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ncat > "+dir+"/"+name+".got\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := host(t, nil)
	h.Custom = extension.New(extension.Returners, h.Log, dir)
	if names := Names(h.Custom); !slices.Contains(names, "mine") || len(names) != len(table)+1 {
		t.Errorf("names: %q", names)
	}
	s, err := Open([]string{"mine,local"}, Options{}, h)
	if err != nil {
		t.Fatal(err)
	}
	s.Early(t.Context(), sample)
	s.Late(t.Context(), sample)
	b, err := os.ReadFile(filepath.Join(dir, "mine.got"))
	if err != nil || !strings.Contains(string(b), `"return":{"fun":"cmd.run_all"`) {
		t.Errorf("it got %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "local.got")); err == nil {
		t.Error("a program has taken the place of a built-in returner")
	}
}

// The settings of a job go before those of its set, and those before the usual ones.
func TestSettingsOfAJob(t *testing.T) {
	h := &Host{Config: map[string]any{"smtp.host": "usual", "smtp.port": 25, "other.smtp.host": "other", "other.http.host": "none of smtp's", "smtpx.host": "x"}}
	for _, c := range []struct {
		name string
		o    Options
		want map[string]any
	}{
		{"none", Options{}, map[string]any{"smtp.host": "usual", "smtp.port": 25}},
		{"a set", Options{Config: "other"}, map[string]any{"smtp.host": "other", "smtp.port": 25}},
		{"a set that there is not", Options{Config: "third"}, map[string]any{"smtp.host": "usual"}},
		{"a single one", Options{Settings: map[string]any{"port": 587}}, map[string]any{"smtp.host": "usual", "smtp.port": 587}},
		{"both", Options{Config: "other", Settings: map[string]any{"host": "mine"}}, map[string]any{"smtp.host": "mine"}},
	} {
		got := h.with("smtp", c.o).Config
		for key, want := range c.want {
			if got[key] != want {
				t.Errorf("%s: %s is %v, want %v", c.name, key, got[key], want)
			}
		}
	}
	if h.Config["smtp.host"] != "usual" || h.Config["smtp.port"] != 25 {
		t.Error("the settings of a job have changed the minion's")
	}
}
