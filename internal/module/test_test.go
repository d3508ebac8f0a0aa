package module

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/function"
)

func TestTestAnswers(t *testing.T) {
	host := &function.Host{ID: "web1", Version: "1.2.3", Config: map[string]any{"test.foo": "bar"}}
	nested := map[string]any{"a": int64(1), "b": []any{"x", "y"}}
	tests := []struct {
		function string
		args     []any
		kwargs   map[string]any
		want     any
	}{
		{"test.ping", nil, nil, true},
		{"test.true", nil, nil, true},
		{"test.false", nil, nil, false},
		{"test.version", nil, nil, "1.2.3"},
		{"test.echo", []any{nested}, nil, nested},
		{"test.echo", []any{nil}, nil, nil},
		{"test.outputter", []any{"x"}, nil, "x"},
		{"test.arg", nil, nil, map[string]any{"args": []any{}, "kwargs": map[string]any{}}},
		{"test.arg", []any{"a", int64(1), 1.0}, map[string]any{"k": "v", "__pub_user": "root"},
			map[string]any{"args": []any{"a", int64(1), 1.0}, "kwargs": map[string]any{"k": "v"}}},
		{"test.arg_repr", []any{"it's", 1.0, nil, true}, map[string]any{"k": []any{"v"}},
			map[string]any{"args": `("it's", 1.0, None, True)`, "kwargs": `{'k': ['v']}`}},
		{"test.arg_repr", []any{"a"}, nil, map[string]any{"args": `('a',)`, "kwargs": `{}`}},
		{"test.arg_type", []any{"a", int64(1), 1.5, nil, nested}, map[string]any{"l": []any{}, "b": true},
			map[string]any{"args": []any{"<class 'str'>", "<class 'int'>", "<class 'float'>", "<class 'NoneType'>", "<class 'dict'>"},
				"kwargs": map[string]any{"l": "<class 'list'>", "b": "<class 'bool'>"}}},
		{"test.kwarg", nil, map[string]any{"a": int64(1), "__pub_jid": "x"}, map[string]any{"a": int64(1)}},
		{"test.conf_test", nil, nil, "bar"},
		{"test.get_opts", nil, nil, map[string]any{"test.foo": "bar"}},
		{"test.sleep", []any{0.001}, nil, true},
		{"test.rand_sleep", []any{int64(0)}, nil, true},
		{"test.cross_test", []any{"test.echo", []any{"hi"}}, nil, "hi"},
		{"test.try", []any{"test.echo", "hi"}, nil, "hi"},
		{"test.try", []any{"test.exception"}, nil, false},
		{"test.try", []any{"test.exception", "boo"}, map[string]any{"return_try_exception": true}, "The minion function caused an exception: boo"},
		{"test.assertion", []any{true}, nil, nil},
	}
	for _, tt := range tests {
		same(t, tt.function, good(t, host, tt.function, tt.kwargs, tt.args...), tt.want)
	}
}

func TestTestFailures(t *testing.T) {
	tests := []struct {
		function string
		args     []any
		want     string
	}{
		{"test.echo", nil, "Passed invalid arguments to test.echo: missing required argument \"text\"\nUsage: test.echo(text)"},
		{"test.exception", []any{"boo"}, "The minion function caused an exception: boo"},
		{"test.raise_exception", []any{"salt.exceptions.CommandExecutionError", "boo"}, "ERROR: boo"},
		{"test.raise_exception", []any{"SaltInvocationError", "boo"}, "ERROR executing 'test.raise_exception': boo"},
		{"test.raise_exception", []any{"OSError", int64(2), "gone"}, "The minion function caused an exception: OSError: 2 gone"},
		{"test.assertion", []any{false}, "caused an exception: AssertionError"},
		{"test.assertion", []any{[]any{}}, "caused an exception: AssertionError"},
		{"test.fib", []any{int64(-1)}, "must be from 0"},
		{"test.fib", []any{int64(maxFib + 1)}, "must be from 0"},
		{"test.collatz", []any{int64(0)}, "starts at 1"},
		{"test.random_hash", []any{int64(0)}, "size must be positive"},
		{"test.random_hash", []any{int64(5), "md6"}, `unknown hash type "md6", known are md5`},
		{"test.cross_test", []any{"test.pign"}, "'test.pign' is not available."},
	}
	for _, tt := range tests {
		bad(t, nil, tt.function, tt.want, nil, tt.args...)
	}
}

func TestRetcode(t *testing.T) {
	if r := run(t, nil, "test.retcode", nil, int64(3)); r.Return != true || r.Retcode != 3 || r.Success || r.Err != nil {
		t.Errorf("test.retcode 3 = %+v", r)
	}
	if r := run(t, nil, "test.retcode", nil); r.Retcode != 42 {
		t.Errorf("test.retcode = %+v", r)
	}
	if r := run(t, nil, "test.cross_test", nil, "test.retcode", []any{int64(5)}); r.Retcode != 5 || r.Return != true {
		t.Errorf("test.cross_test test.retcode = %+v", r)
	}
}

func TestSequences(t *testing.T) {
	fib := good(t, nil, "test.fib", nil, int64(100)).([]any)
	same(t, "fib(100)", repr(fib[0]), "354224848179261915075")
	collatz := good(t, nil, "test.collatz", nil, int64(6)).([]any)
	same(t, "collatz(6)", collatz[0], []any{6, 3, 10, 5, 16, 8, 4, 2})
	if h := good(t, nil, "test.random_hash", map[string]any{"hash_type": "sha512"}).(string); len(h) != 128 {
		t.Errorf("random_hash = %q", h)
	}
}

func TestSleepEndsWithItsJob(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("killed")
	go cancel(cause)
	if r := Run(ctx, function.Call{Function: "test.sleep", Args: []any{int64(1000)}}); !errors.Is(r.Err, cause) {
		t.Errorf("got %+v", r)
	}
}

func TestVersions(t *testing.T) {
	host := &function.Host{Version: "1.2.3", Data: minionData{grains: map[string]any{
		"osfullname": "Debian GNU/Linux", "osrelease": "12", "oscodename": "bookworm", "kernel": "Linux",
	}}}
	report := good(t, host, "test.versions_report", nil).(string)
	for _, want := range []string{"Brine Version:\n    Brine: 1.2.3", "dist: Debian GNU/Linux 12 bookworm", "system: Linux", " Go: "} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	if _, ok := good(t, nil, "test.versions_information", nil).(map[string]any)["System Versions"]; !ok {
		t.Error("no system versions")
	}
}

func TestConfig(t *testing.T) {
	host := &function.Host{
		Config: map[string]any{"cachedir": "/var/cache/salt", "a": map[string]any{"b": "opts"}, "x:y": "flat"},
		Data: minionData{
			grains: map[string]any{"os": "Debian", "a": map[string]any{"b": "grain", "c": "d"}},
			pillar: map[string]any{"role": "web", "os": "pillar"},
		},
	}
	tests := []struct {
		function string
		args     []any
		kwargs   map[string]any
		want     any
	}{
		{"config.get", []any{"cachedir"}, nil, "/var/cache/salt"},
		{"config.get", []any{"a:b"}, nil, "opts"},
		{"config.get", []any{"a:b"}, map[string]any{"omit_opts": true}, "grain"},
		{"config.get", []any{"a.c"}, map[string]any{"delimiter": "."}, "d"},
		{"config.get", []any{"os"}, map[string]any{"omit_grains": true}, "pillar"},
		{"config.get", []any{"role"}, map[string]any{"omit_pillar": true}, ""},
		{"config.get", []any{"nosuch", "fallback"}, nil, "fallback"},
		{"config.option", []any{"x:y"}, nil, "flat"},
		{"config.option", []any{"role"}, nil, "web"},
		{"config.option", []any{"nosuch", int64(1)}, nil, int64(1)},
		{"config.items", nil, nil, host.Config},
	}
	for _, tt := range tests {
		same(t, tt.function+repr(tt.args), good(t, host, tt.function, tt.kwargs, tt.args...), tt.want)
	}
}

func TestReprIsPythons(t *testing.T) {
	for want, v := range map[string]any{
		`'a\n\t\\'`: "a\n\t\\", `"it's"`: "it's", `'it\'s "x"'`: `it's "x"`, `b'\xff'`: "\xff", `'\x00é'`: "\x00é", `'\u200b'`: "\u200b",
		"1e+16": 1e16, "0.0001": 0.0001, "1e-05": 1e-5, "123456.0": 123456.0, "0.0": 0.0,
		"[]": []any{}, "{'a': [1, None]}": map[string]any{"a": []any{int64(1), nil}},
	} {
		if got := repr(v); got != want {
			t.Errorf("repr(%#v) = %s, want %s", v, got, want)
		}
	}
}
