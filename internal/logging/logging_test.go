package logging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// open returns a log that writes all levels to a buffer.
func open(t *testing.T, o logging.Options) (*logging.Log, *bytes.Buffer) {
	t.Helper()
	var console bytes.Buffer
	o.Console = &console
	l, err := logging.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, &console
}

type hidden struct{}

func (hidden) LogValue() slog.Value { return slog.StringValue("***") }

type broken struct{}

func (*broken) Error() string { panic("no") }

func TestConsoleLine(t *testing.T) {
	l, console := open(t, logging.Options{ConsoleLevel: logging.LevelAll})
	at := time.Date(2026, 11, 21, 11, 24, 50, 0, time.UTC)
	var nobody *broken
	for _, tc := range []struct {
		name string
		log  func()
		want string
	}{
		{"message alone", func() { l.Info("started") }, "[INFO    ] started"},
		{"attributes", func() { l.Warn("key denied", "minion", salt.MinionID("web1"), "tries", 3) }, "[WARNING ] key denied minion=web1 tries=3"},
		{"a value with blanks", func() { l.Error("stopped", "err", errors.New("no space")) }, `[ERROR   ] stopped err="no space"`},
		{"an empty value", func() { l.Info("x", "user", "") }, `[INFO    ] x user=""`},
		{"a quote and an equals sign", func() { l.Info("x", "a", `"`, "b", "k=v") }, `[INFO    ] x a="\"" b="k=v"`},
		{"letters of the world", func() { l.Info("x", "user", "Łukasz") }, "[INFO    ] x user=Łukasz"},
		{"time and duration", func() { l.Info("x", "at", at, "took", 1500*time.Millisecond) }, "[INFO    ] x at=2026-11-21T11:24:50Z took=1.5s"},
		{"bytes", func() { l.Info("x", "data", []byte("a b\x00")) }, `[INFO    ] x data="a b\x00"`},
		{"a list", func() { l.Info("x", "ids", []string{"a", "b"}) }, `[INFO    ] x ids="[a b]"`},
		{"nil", func() { l.Info("x", "err", nil) }, `[INFO    ] x err=<nil>`},
		{"an error that panics", func() { l.Info("x", "err", nobody) }, `[INFO    ] x err=<nil>`},
		{"a value that hides itself", func() { l.Info("x", "key", hidden{}) }, "[INFO    ] x key=***"},
		{"a group", func() { l.Info("x", slog.Group("g", "a", 1, slog.Group("", "b", 2))) }, "[INFO    ] x g.a=1 g.b=2"},
		{"derived", func() { l.With("jid", "1").WithGroup("g").With("a", 1).Info("x", "b", 2) }, "[INFO    ] x jid=1 g.a=1 g.b=2"},
		{"trace", func() { l.Log(context.Background(), logging.LevelTrace, "x") }, "[TRACE   ] x"},
		{"profile", func() { l.Log(context.Background(), logging.LevelProfile, "x") }, "[PROFILE ] x"},
		{"critical", func() { l.Log(context.Background(), logging.LevelCritical, "x") }, "[CRITICAL] x"},
		{"below the scale", func() { l.Log(context.Background(), -100, "x") }, "[GARBAGE ] x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			console.Reset()
			tc.log()
			if got := console.String(); got != tc.want+"\n" {
				t.Errorf("got  %q\nwant %q", got, tc.want+"\n")
			}
		})
	}
}

func TestSiblingsDoNotShareAttributes(t *testing.T) {
	l, console := open(t, logging.Options{})
	parent := l.With("a", 1)
	one, two := parent.With("b", 1), parent.With("c", 2)
	one.Info("x")
	two.Info("x")
	if got, want := console.String(), "[INFO    ] x a=1 b=1\n[INFO    ] x a=1 c=2\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestForeignTextMakesNoLine tries to forge a line and to steer the terminal in
// each place that text from outside can reach.
func TestForeignTextMakesNoLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, console := open(t, logging.Options{File: path})
	const forged = "web1\n[INFO    ] key accepted minion=evil\r\x1b[2J\u202e\u2028\u0085\x9b\xff\x00\x7f"
	l.Info(forged, "minion", forged, forged, forged, "err", errors.New(forged), "data", []byte(forged))
	l.WithGroup(forged).Info("x", forged, []string{forged})
	l.With(forged, forged).Info("x")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"console": console.String(), "file": string(file)} {
		if n := strings.Count(text, "\n"); n != 3 {
			t.Errorf("%s: %d lines, want 3:\n%q", name, n, text)
		}
		if strings.ContainsAny(text, "\r\x1b\u202e\u2028\u0085\x00\x7f") || strings.Contains(text, "\x9b") || strings.Contains(text, "\xff") {
			t.Errorf("%s: something unprintable came through: %q", name, text)
		}
	}
}

// What somebody sends at length is not a long line, however it is handed over, and the line
// says that it was cut.
func TestLongValuesAreCut(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, asJSON := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "log")
		l, console := open(t, logging.Options{JSON: asJSON, File: path})
		l.With("target", long).Warn("refused", "fun", []string{long}, "err", errors.New(long), "data", []byte(long), "end", "seen")
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"console": console.String(), "file": string(file)} {
			if len(text) > 20<<10 || strings.Count(text, "bytes more") != 4 || !strings.Contains(text, "seen") {
				t.Errorf("%s, JSON %v: %d bytes: %.100s", name, asJSON, len(text), text)
			}
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("web1")
	f.Add("a\nb\x1b\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := logging.Escape(s)
		if logging.Escape(got) != got {
			t.Errorf("Escape(%q) = %q is not printable", s, got)
		}
		for _, r := range got {
			if r < ' ' || r == 0x7f {
				t.Errorf("Escape(%q) = %q has a control character", s, got)
			}
		}
	})
}

func TestFileLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, logging.Options{File: path, Name: "salt-master"})
	l.Info("key accepted", "minion", "web1")
	l.Handler().Handle(context.Background(), slog.NewRecord(time.Now(), slog.LevelError, "no source", 0))
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const date = `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} `
	want := regexp.MustCompile(`^` + date + `\[salt\.logging_test:\d+ *\]\[INFO    \]\[\d+\] key accepted minion=web1\n` +
		date + `\[salt-master      :0   \]\[ERROR   \]\[\d+\] no source\n$`)
	if !want.Match(got) {
		t.Errorf("got %q\nwant %v", got, want)
	}
}

func TestFileMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	open(t, logging.Options{File: path})
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm() &^ logging.FileMode; got != 0 {
		t.Errorf("mode %v is wider than %v", info.Mode(), fs.FileMode(logging.FileMode))
	}
}

func TestUnwritableFile(t *testing.T) {
	l, err := logging.New(logging.Options{File: filepath.Join(t.TempDir(), "missing", "log")})
	if l != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("New = %v, %v", l, err)
	}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, logging.Options{File: path})
	l.Info("one")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Info("two")
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Info("three")
	old, _ := os.ReadFile(path + ".1")
	fresh, _ := os.ReadFile(path)
	if strings.Count(string(old), "\n") != 2 || !strings.HasSuffix(string(fresh), "three\n") || strings.Count(string(fresh), "\n") != 1 {
		t.Errorf("old %q, fresh %q", old, fresh)
	}
}

// TestJSON reads every line back, whatever is in it, and looks for what steers a terminal.
func TestJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, console := open(t, logging.Options{JSON: true, Name: "salt-master", File: path})
	const forged = "web1\n{\"jid\":\"evil\"}\r\x1b[2J\u202e\u0085\x9b\xff\x00"
	l.With("jid", salt.JID("20261121113344286549")).Info("job", "minions", 3, "took", 1500*time.Millisecond, "err", errors.New("no space"), "key", hidden{})
	l.Log(context.Background(), logging.LevelCritical, forged, forged, forged)
	l.WithGroup("g").Warn("x", "a", []string{"b"})
	l.Debug("not shown")
	l.SetLevels(logging.LevelQuiet, logging.LevelQuiet)
	l.Error("not shown")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"console": console.String(), "file": string(file)} {
		var lines []map[string]any
		for line := range strings.Lines(text) {
			var one map[string]any
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%s: %q: %v", where, line, err)
			}
			if _, err := time.Parse(time.RFC3339Nano, one["time"].(string)); err != nil || one["program"] != "salt-master" || one["pid"] != float64(os.Getpid()) {
				t.Errorf("%s: %v", where, one)
			}
			delete(one, "time")
			delete(one, "program")
			delete(one, "pid")
			lines = append(lines, one)
		}
		want := []map[string]any{
			{"level": "INFO", "msg": "job", "jid": "20261121113344286549", "minions": 3.0, "took": "1.5s", "err": "no space", "key": "***"},
			{"level": "CRITICAL", "msg": logging.Escape(forged), logging.Escape(forged): logging.Escape(forged)},
			{"level": "WARNING", "msg": "x", "g": map[string]any{"a": "[b]"}},
		}
		if !reflect.DeepEqual(lines, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", where, lines, want)
		}
		if strings.ContainsAny(text, "\r\x1b\u202e\u0085\x00") {
			t.Errorf("%s: something unprintable came through: %q", where, text)
		}
	}
}

func TestLevels(t *testing.T) {
	for name, want := range map[string]string{
		"all": "trace debug info warn error critical", "garbage": "trace debug info warn error critical",
		"trace": "trace debug info warn error critical", "debug": "debug info warn error critical",
		"profile": "info warn error critical", "info": "info warn error critical",
		"Warning": "warn error critical", "error": "error critical", "CRITICAL": "critical", "quiet": "",
	} {
		level, err := logging.ParseLevel(name)
		if err != nil {
			t.Fatal(err)
		}
		l, console := open(t, logging.Options{ConsoleLevel: logging.LevelQuiet})
		l.SetLevels(level, logging.LevelQuiet)
		ctx := context.Background()
		l.Log(ctx, logging.LevelTrace, "trace")
		l.Debug("debug")
		l.Info("info")
		l.Warn("warn")
		l.Error("error")
		l.Log(ctx, logging.LevelCritical, "critical")
		var got []string
		for line := range strings.Lines(console.String()) {
			_, message, _ := strings.Cut(strings.TrimSpace(line), "] ")
			got = append(got, message)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("at %s: %q, want %q", name, got, want)
		}
	}
}

func TestConsoleAndFileHaveTheirOwnLevel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, console := open(t, logging.Options{ConsoleLevel: slog.LevelError, File: path, FileLevel: slog.LevelInfo})
	l.Info("small")
	l.Error("large")
	file, _ := os.ReadFile(path)
	if console.String() != "[ERROR   ] large\n" || strings.Count(string(file), "\n") != 2 {
		t.Errorf("console %q, file %q", console.String(), file)
	}
}

func TestParseLevelRefuses(t *testing.T) {
	for _, name := range []string{"", "loud", "info ", "warn"} {
		if level, err := logging.ParseLevel(name); err == nil || salt.Hint(err) == "" {
			t.Errorf("ParseLevel(%q) = %v, %v", name, level, err)
		}
	}
}

func TestColor(t *testing.T) {
	l, console := open(t, logging.Options{Color: true})
	l.Error("x")
	if got, want := console.String(), "[\x1b[0;31mERROR   \x1b[0m] x\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConcurrentUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, console := open(t, logging.Options{File: path})
	const writers, each = 8, 50
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				l.With("minion", "web1").Info("x")
			}
		})
	}
	for range 5 {
		l.SetLevels(slog.LevelInfo, slog.LevelInfo)
		if err := l.Reopen(); err != nil {
			t.Error(err)
		}
	}
	deadline.Call(t, all.Wait, "all")
	want := strings.Repeat("[INFO    ] x minion=web1\n", writers*each)
	file, _ := os.ReadFile(path)
	if console.String() != want || strings.Count(string(file), "\n") != writers*each {
		t.Error("lines are lost or torn")
	}
}
