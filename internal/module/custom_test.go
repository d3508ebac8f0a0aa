package module

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
)

const greeting = `#!/bin/sh
case $1 in
--describe) echo '{"doc": "Greetings.", "functions": {
  "hello": {"doc": "Greet somebody.", "args": ["name", {"name": "times", "type": "int", "default": 1}], "kwargs": true},
  "text": {"doc": "Say a text.", "answer": "text", "varargs": true},
  "fail": {"doc": "Fail."}, "hang": {"doc": "Stay."}, "who": {"doc": "Say for whom.", "answer": "text"}}}' ;;
hello) sed 's/.*"args":\(\[[^]]*\]\).*"kwargs":\({[^}]*}\).*/{"args": \1, "kwargs": \2}/' ;;
text) echo some text ;;
fail) echo broken >&2; exit 7 ;;
hang) echo x > "$(dirname "$0")/started"; sleep 1000 ;;
who) echo "${SALT_PUBLISHED_BY-nobody}" ;;
esac
`

// withProgram is a minion that has the program of that name, and its log.
func withProgram(t testing.TB, name, text string) (*function.Host, string, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	reported := new(bytes.Buffer)
	return &function.Host{ID: "web1", Custom: extension.New(extension.Modules, log, dir), Log: slog.New(slog.NewTextHandler(reported, nil))}, dir, reported
}

func TestCustomFunctions(t *testing.T) {
	h, _, _ := withProgram(t, "greet.sh", greeting)
	same(t, "hello", good(t, h, "greet.hello", map[string]any{"name": "you", "a": "b"}), map[string]any{"args": []any{"you", int64(1)}, "kwargs": map[string]any{"a": "b"}})
	same(t, "hello", good(t, h, "greet.hello", nil, "you", "3").(map[string]any)["args"], []any{"you", int64(3)})
	same(t, "text", good(t, h, "greet.text", nil, "more", "words"), "some text")
	if r := bad(t, h, "greet.fail", "exit code 7: broken", nil); r.Retcode != 7 {
		t.Errorf("return code %d, want 7", r.Retcode)
	}
	bad(t, h, "greet.hello", "missing required argument \"name\"\nUsage: greet.hello(name, times=1, **kwargs)", nil)
	bad(t, h, "greet.hello", `argument "times": want a whole number`, nil, "you", "many")
	bad(t, h, "greet.text", `unknown keyword argument "x"`, map[string]any{"x": 1})
	bad(t, h, "greet.helo", "'greet.helo' is not available. Did you mean greet.hello?", nil)
	bad(t, nil, "greet.hello", "'greet.hello' is not available.", nil)
}

func TestCustomFunctionsAreDescribed(t *testing.T) {
	h, _, _ := withProgram(t, "greet", greeting)
	doc := good(t, h, "sys.doc", nil, "greet.hello").(map[string]any)["greet.hello"].(string)
	if !strings.HasPrefix(doc, "Greet somebody.") || !strings.Contains(doc, "greet.hello(name, times=1, **kwargs)") {
		t.Errorf("sys.doc: %q", doc)
	}
	same(t, "list_functions", good(t, h, "sys.list_functions", nil, "greet"), []any{"greet.fail", "greet.hang", "greet.hello", "greet.text", "greet.who"})
	if list := good(t, h, "sys.list_modules", nil, "gr*"); len(list.([]any)) != 3 {
		t.Errorf("list_modules: %v", list)
	}
	spec := good(t, h, "sys.argspec", nil, "greet.hello").(map[string]any)["greet.hello"]
	same(t, "argspec", spec, map[string]any{"args": []any{"name", "times"}, "defaults": []any{int64(1)}, "kwargs": true, "varargs": nil})
}

func TestCustomFunctionsDoNotReplaceBuiltInOnes(t *testing.T) {
	h, dir, reported := withProgram(t, "test.sh", "#!/bin/sh\n[ $1 != --describe ] || { echo '{\"functions\": {\"ping\": {}, \"more\": {}}}'; exit; }\necho '\"custom\"'\n")
	same(t, "test.ping", good(t, h, "test.ping", nil), true)
	same(t, "test.more", good(t, h, "test.more", nil), "custom")
	same(t, "list", len(good(t, h, "sys.list_functions", nil, "test.[mp]*").([]any)), 3)
	server, _ := serving(t, nil)
	h.Services, h.CacheDir = server.Services, server.CacheDir
	good(t, h, "saltutil.sync_modules", nil)
	if !strings.Contains(reported.String(), "the built-in one takes precedence") || !strings.Contains(reported.String(), "fun=test.ping program="+dir) || strings.Contains(reported.String(), "test.more") {
		t.Errorf("the log: %s", reported)
	}
}

func TestCustomFunctionThatCanNotBeUsed(t *testing.T) {
	h, dir, _ := withProgram(t, "greet", "#!/bin/sh\necho no module >&2; exit 1\n")
	bad(t, h, "greet.hello", "'greet.hello' is not available: "+dir+"/greet --describe: it: exit code 1: no module", nil)
	if list := good(t, h, "sys.list_modules", nil, "greet"); len(list.([]any)) != 0 {
		t.Errorf("it is listed: %v", list)
	}
}

func TestCustomFunctionEndsWithItsJob(t *testing.T) {
	h, dir, _ := withProgram(t, "greet", greeting)
	ctx, cancel := context.WithCancelCause(t.Context())
	killed := errors.New("killed by somebody")
	go func() {
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
			if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
				break
			}
		}
		cancel(killed)
	}()
	if r := Run(ctx, function.Call{Function: "greet.hang", Host: h}); !errors.Is(r.Err, killed) {
		t.Errorf("%+v", r)
	}
}

func TestProgramsKnowForWhomTheyRun(t *testing.T) {
	h, _, _ := withProgram(t, "greet", greeting)
	same(t, "who", good(t, h, "greet.who", nil), "nobody")
	h.Environ = []string{"SALT_PUBLISHED_BY=web2"}
	same(t, "who", good(t, h, "greet.who", nil), "web2")
	same(t, "cmd.run", good(t, h, "cmd.run", nil, "echo $SALT_PUBLISHED_BY"), "web2")
	same(t, "cmd.run", good(t, h, "cmd.run", map[string]any{"clean_env": true}, "echo $SALT_PUBLISHED_BY"), "web2")
}

func TestSync(t *testing.T) {
	h, dir := serving(t, map[string]string{"_modules/greet.sh": greeting, "_grains/g": "#!/bin/sh\necho '{}'\n", "_returners/r": "#!/bin/sh\n"})
	for _, name := range []string{"_modules/greet.sh", "_grains/g", "_returners/r"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.Custom = extension.OfMinion(extension.Modules, nil, h.CacheDir, h.Logger())
	refreshed := 0
	services(h).Facts = refresher(func() error { refreshed++; return nil })
	bad(t, h, "greet.text", "is not available", nil)
	same(t, "sync_all", good(t, h, "saltutil.sync_all", nil), map[string]any{"grains": []any{"grains.g"}, "modules": []any{"modules.greet"}, "returners": []any{"returners.r"}})
	same(t, "at once", good(t, h, "greet.text", nil), "some text")
	same(t, "again", good(t, h, "saltutil.sync_modules", nil), []any{})
	same(t, "grains", good(t, h, "saltutil.sync_grains", map[string]any{"refresh": false}), []any{})
	if refreshed != 1 {
		t.Errorf("grains were collected %d times, want once", refreshed)
	}
	if err := os.Remove(filepath.Join(dir, "_modules/greet.sh")); err != nil {
		t.Fatal(err)
	}
	good(t, h, "saltutil.sync_modules", nil)
	bad(t, h, "greet.text", "is not available", nil)
	bad(t, h, "saltutil.sync_modules", "not a path below", map[string]any{"saltenv": "../x"})
	bad(t, &function.Host{Paths: function.Paths{CacheDir: "/x"}}, "saltutil.sync_modules", "file server", nil)
}

// TestExamplesOfTheManual runs the programs of doc/modules.md as they stand there.
func TestExamplesOfTheManual(t *testing.T) {
	text, err := os.ReadFile("../../doc/modules.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, block := range strings.Split(string(text), "\n```")[1:] {
		if language, program, ok := strings.Cut(block, "\n"); ok && language != "" {
			blocks[language] = program + "\n"
		}
	}
	for program, calls := range map[string]map[string]any{
		"sh": {"greet.hello": "hello world, I am web1"}, "python": {"greet.divide": map[string]any{"quotient": int64(3), "rest": int64(1)}},
	} {
		interpreter, _, _ := strings.Cut(strings.TrimPrefix(blocks[program], "#!/usr/bin/env "), "\n")
		if program == "sh" {
			interpreter = "jq"
		}
		if which(interpreter) == nil {
			t.Logf("there is no %s", interpreter)
			continue
		}
		h, _, _ := withProgram(t, "greet", blocks[program])
		for function, want := range calls {
			arg := map[string]any{"greet.hello": "world", "greet.divide": int64(7)}[function]
			same(t, function, good(t, h, function, nil, arg), want)
			if doc := good(t, h, "sys.doc", nil, function).(map[string]any)[function].(string); !strings.Contains(doc, ".") {
				t.Errorf("sys.doc %s: %q", function, doc)
			}
		}
	}
	h, _, _ := withProgram(t, "greet", blocks["sh"])
	if which("uptime") != nil && !strings.Contains(good(t, h, "greet.uptime", nil).(string), "up") {
		t.Error("greet.uptime")
	}
}

func TestModulesCanBeSwitchedOff(t *testing.T) {
	h, _, _ := withProgram(t, "greet", greeting)
	h.Config = map[string]any{"disable_modules": []any{"greet", "cmd"}}
	bad(t, h, "cmd.run", "'cmd.run' is not available: disable_modules has the module cmd", nil, "true")
	bad(t, h, "greet.text", "disable_modules has the module greet", nil)
	same(t, "listed", good(t, h, "sys.list_modules", nil, "cmd", "greet", "test"), []any{"test"})
	h.Config = map[string]any{"disable_modules": []any{"cmdmod"}} // as Salt's document has it
	bad(t, h, "cmd.run", "disable_modules has the module cmd", nil, "true")
	h.Config = map[string]any{"whitelist_modules": []any{"test"}}
	same(t, "on the list", good(t, h, "test.ping", nil), true)
	same(t, "listed", good(t, h, "sys.list_modules", nil), []any{"saltutil", "sys", "test"})
	bad(t, h, "cmd.run", "whitelist_modules does not have the module cmd", nil, "true")
	h.Config = map[string]any{"whitelist_modules": []any{}, "disable_modules": "cmd"}
	bad(t, h, "cmd.run", "disable_modules", nil, "true")
	good(t, h, "test.ping", nil)
}
