package module

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// saltModule is what people have in _modules: no first line, not executable.
const saltModule = `# -*- coding: utf-8 -*-
"""Tools of the house."""
import logging
import os
from os.path import join
from salt.exceptions import CommandExecutionError

log = logging.getLogger(__name__)
__func_alias__ = {"list_": "list"}


def __virtual__():
    if __grains__.get("os") == "Plan9":
        return (False, "there is no Plan 9 here")
    return True


def who(greeting="hello"):
    """Greet the minion.

    CLI Example: salt '*' tools.who
    """
    print("this is not an answer")
    log.warning("nor is this")
    return "%s %s of %s" % (greeting, __opts__["id"], __grains__["os"])


def pillar(key):
    return __pillar__[key]


def types(pair=(1, 2), *more, last=None, **named):
    return {"pair": isinstance(pair, tuple), "more": list(more), "last": last, "named": named}


def exact():
    return {"z": (1, "x"), "a": {2}, "m": {1: b"y", None: [()]}}


def list_():
    return {"b", "a"}


def echo(text, twice=False):
    if "test.echo" not in __salt__ or "no.such" in __salt__:
        raise CommandExecutionError("the minion has other functions")
    return [__salt__["test.echo"](text) for _ in range(2 if twice else 1)]


def run(fun, *args, **kwargs):
    return __salt__[fun](*args, **{k: v for k, v in kwargs.items() if not k.startswith("__")})


def again():
    return __salt__["tools.again"]()


def code():
    __context__["retcode"] = 7
    return "seven"


def stop(kind):
    if kind == "words":
        raise CommandExecutionError("no room")
    if kind == "object":
        return object()
    return {}[kind]


def _private():
    return "never"
`

// withModule is a minion with a module of Python that root has asked, and the directory.
func withModule(t testing.TB, name, text string) (*function.Host, string) {
	t.Helper()
	if which("python3") == nil {
		t.Skip("there is no python3")
	}
	h, dir, _ := withProgram(t, "greet", "#!/bin/sh\necho '{}'\n")
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Config = map[string]any{"id": "web1"}
	h.Data = minionData{grains: map[string]any{"os": "Debian"}}
	return h, dir
}

func TestModulesOfPython(t *testing.T) {
	h, _ := withModule(t, "tools.py", saltModule)
	same(t, "who", good(t, h, "tools.who", nil), "hello web1 of Debian")
	same(t, "who", good(t, h, "tools.who", map[string]any{"greeting": "hail"}), "hail web1 of Debian")
	same(t, "list", good(t, h, "tools.list", nil), []any{"a", "b"})
	same(t, "types", good(t, h, "tools.types", nil), map[string]any{"pair": true, "more": []any{}, "last": nil, "named": map[string]any{}})
	same(t, "types", good(t, h, "tools.types", map[string]any{"last": 1, "x": "y"}, []any{3}, 4, "5"), map[string]any{"pair": false, "more": []any{4, "5"}, "last": 1, "named": map[string]any{"x": "y"}})
	exact := run(t, h, "tools.exact", nil).Return
	if got, want := value.Repr(exact), `{'z': (1, 'x'), 'a': {2}, 'm': {1: b'y', None: [()]}}`; got != want {
		t.Errorf("exactly: %s, want %s", got, want)
	}
	same(t, "on the wire", wire(t, exact), map[string]any{"z": []any{1, "x"}, "a": []any{2}, "m": map[string]any{"1": "y", "null": []any{[]any{}}}})
	same(t, "functions", good(t, h, "sys.list_functions", nil, "tools"), []any{
		"tools.again", "tools.code", "tools.echo", "tools.exact", "tools.join", "tools.list", "tools.pillar", "tools.run", "tools.stop", "tools.types", "tools.who",
	})
	if doc := good(t, h, "sys.doc", nil, "tools.who").(map[string]any)["tools.who"].(string); !strings.HasPrefix(doc, "Greet the minion.") || !strings.Contains(doc, "tools.who(greeting='hello')") {
		t.Errorf("sys.doc: %q", doc)
	}
}

func TestModulesOfPythonFail(t *testing.T) {
	h, dir := withModule(t, "tools.py", saltModule)
	bad(t, h, "tools.stop", "exit code 1: no room", nil, "words")
	bad(t, h, "tools.stop", "KeyError: 'other'", nil, "other")
	bad(t, h, "tools.stop", "a value of the type object cannot be sent", nil, "object")
	bad(t, h, "tools.stop", `missing required argument "kind"`, nil)
	bad(t, h, "tools._private", "is not available", nil)
	if r := run(t, h, "tools.code", nil); r.Retcode != 7 || r.Return != "seven" {
		t.Errorf("tools.code: %+v", r)
	}
	h.Data = minionData{grains: map[string]any{"os": "Plan9"}}
	bad(t, h, "tools.who", "there is no Plan 9 here", nil)
	for name, c := range map[string][2]string{
		"needs.py":  {"import salt.utils.files\ndef f(): pass\n", "it imports salt.utils: of Salt's own package there is salt.exceptions only"},
		"misses.py": {"import no_such_package\ndef f(): pass\n", "it imports no_such_package, which this machine's python3 does not have"},
		"early.py":  {"x = __salt__['test.ping']()\n", "__salt__ can be used while a function runs"},
		"torn.py":   {"def f(:\n", "SyntaxError"},
		"other":     {"text", "is skipped: it is neither executable nor a module of Python"},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(c[0]), 0o644); err != nil {
			t.Fatal(err)
		}
		module, _, _ := strings.Cut(name, ".")
		bad(t, h, module+".f", c[1], nil)
	}
	t.Setenv("PATH", "/nonexistent")
	if err := os.WriteFile(filepath.Join(dir, "late.py"), []byte("def f(): pass\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad(t, h, "late.f", "it is a module of Python, and this machine has no python3", nil)
}

// TestModulesOfPythonCallFunctions: what __salt__ calls stands in the module only, so it is
// for an operator who asks for that call; for everybody else, and for what was stored, it is
// refused and has not run.
func TestModulesOfPythonCallFunctions(t *testing.T) {
	h, dir := withModule(t, "tools.py", saltModule)
	file := filepath.Join(dir, "touched")
	call := func(reach salt.Reach, f salt.Function, kwargs map[string]any, args ...any) function.Result {
		return Run(t.Context(), function.Call{Function: f, Args: args, Kwargs: kwargs, Host: h, Reach: reach})
	}
	free := salt.Reach{Free: true, Programs: true}
	same(t, "echo", call(free, "tools.echo", map[string]any{"twice": true}, "5").Return, []any{"5", "5"})
	same(t, "text", call(free, "tools.run", nil, "test.echo", "fun=5 é").Return, "fun=5 é")
	same(t, "kwargs", call(free, "tools.run", map[string]any{"python_shell": true}, "cmd.run", "echo a; echo b").Return, "a\nb")
	same(t, "custom", call(free, "tools.run", nil, "tools.list").Return, []any{"a", "b"})
	if r := call(free, "tools.run", nil, "test.exception"); r.Err == nil || !strings.Contains(r.Return.(string), "exit code 1") {
		t.Errorf("a function that fails within: %+v", r)
	}
	if r := call(free, "tools.run", nil, "no.such"); !strings.Contains(r.Return.(string), "KeyError: 'no.such'") {
		t.Errorf("a function that there is not: %+v", r)
	}
	if r := call(free, "tools.again", nil); !strings.Contains(r.Return.(string), "more than 8 deep") {
		t.Errorf("a function that calls itself: %.500v", r)
	}
	for _, reach := range []salt.Reach{{}, {Free: true}, {Judged: []string{function.Inner{Command: salt.Command{Function: "cmd.run", Args: []any{"touch " + file}}}.Key()}}} {
		r := call(reach, "tools.run", nil, "cmd.run", "touch "+file)
		if r.Retcode != function.CodeRefused || !strings.Contains(r.Return.(string), "tools.run would run cmd.run, about which the master did not decide") {
			t.Errorf("asked by somebody else: %+v", r)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("what was refused has run")
	}
	if r := call(salt.Reach{}, "tools.who", nil); !r.Success {
		t.Errorf("what calls nothing is anybody's: %+v", r)
	}
}

// TestModulesOfPythonSync: a file that cannot be used is told by the synchronisation, and
// to whoever calls it; modules of Python give grains too.
func TestModulesOfPythonSync(t *testing.T) {
	h, _ := withModule(t, "x.py", "")
	server, _ := serving(t, map[string]string{
		"_modules/tools.py": saltModule, "_modules/notes.txt": "none", "_modules/my-tools.py": "def f(): pass\n", "_modules/torn.py": "def f(:\n",
		"_grains/place.py": "def site():\n    return {'site': 'north'}\ndef rack(grains):\n    return {'rack': 4}\ndef none():\n    return None\n",
	})
	server.Log, server.Config, server.Data = h.Log, h.Config, h.Data
	server.Custom = extension.OfMinion(extension.Modules, nil, server.CacheDir, h.Log)
	same(t, "sync_all", good(t, server, "saltutil.sync_all", map[string]any{"refresh": false}), map[string]any{
		"grains": []any{"grains.place"}, "modules": []any{"modules.my-tools", "modules.notes", "modules.tools", "modules.torn"}, "returners": []any{},
	})
	same(t, "who", good(t, server, "tools.who", nil), "hello web1 of Debian")
	bad(t, server, "notes.f", "notes.txt is skipped: it is neither executable nor a module of Python", nil)
	grains := extension.OfMinion(extension.Grains, nil, server.CacheDir, h.Log)
	same(t, "grains", grains.Collect(t.Context(), extension.Request{ID: "web1"}, extension.Env{}), map[string]any{"site": "north", "rack": 4})
}

// TestModuleOfTheManual runs the module of doc/modules.md as it stands there.
func TestModuleOfTheManual(t *testing.T) {
	text, err := os.ReadFile("../../doc/modules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```py\n")
	program, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the manual has no module")
	}
	h, dir := withModule(t, "tools.py", program)
	h.Data = minionData{grains: map[string]any{"id": "web1"}}
	same(t, "owner", good(t, h, "tools.owner", nil, "/etc/passwd"), "root on web1")
	bad(t, h, "tools.owner", "there is no "+dir+"/none", nil, dir+"/none")
}
