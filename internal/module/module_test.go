package module

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

var update = flag.Bool("update", false, "rewrite the generated documentation")

// run calls a function on host as a job does.
func run(t testing.TB, host *Host, function string, kwargs map[string]any, args ...any) Result {
	t.Helper()
	r := Run(t.Context(), Call{JID: "20261121113344286549", Function: salt.Function(function), Args: args, Kwargs: kwargs, Host: host, Reach: Reach{Free: true}})
	if _, err := value.Encode(r.Return); err != nil {
		t.Errorf("%s returned what can not be sent: %v", function, err)
	}
	if r.Success != (r.Retcode == 0) {
		t.Errorf("%s: success %v with return code %d", function, r.Success, r.Retcode)
	}
	return r
}

// wire is a return as it arrives at the other side.
func wire(t testing.TB, v any) any {
	t.Helper()
	b, err := value.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	back, err := value.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// good calls a function that must succeed and returns its answer as it arrives
// at the other side.
func good(t testing.TB, host *Host, function string, kwargs map[string]any, args ...any) any {
	t.Helper()
	r := run(t, host, function, kwargs, args...)
	if !r.Success {
		t.Fatalf("%s%v: %v (retcode %d)", function, args, r.Return, r.Retcode)
	}
	return wire(t, r.Return)
}

// bad calls a function that must fail with a text that contains want.
func bad(t testing.TB, host *Host, function, want string, kwargs map[string]any, args ...any) Result {
	t.Helper()
	r := run(t, host, function, kwargs, args...)
	text, _ := r.Return.(string)
	if r.Success || r.Err == nil || !strings.Contains(text, want) {
		t.Errorf("%s%v = %v, success %v, err %v; want a failure with %q", function, args, r.Return, r.Success, r.Err, want)
	}
	return r
}

// same compares answers by their encoded form.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	g, err := value.Encode(got)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	w, err := value.Encode(want)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if string(g) != string(w) {
		t.Errorf("%s = %s, want %s", what, g, w)
	}
}

func TestTablesAreSortedAndDocumented(t *testing.T) {
	if !slices.IsSortedFunc(modules, func(a, b *Module) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("modules are not sorted: %v", Modules())
	}
	for _, m := range modules {
		if m.Doc == "" {
			t.Errorf("%s has no documentation", m.Name)
		}
		if !slices.IsSortedFunc(m.Functions, func(a, b Function) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("functions of %s are not sorted", m.Name)
		}
		for i := range m.Functions {
			checkDeclaration(t, m.Name, &m.Functions[i])
		}
	}
}

func checkDeclaration(t *testing.T, module string, f *Function) {
	name := module + "." + f.Name
	if _, err := salt.ParseFunction(name); err != nil {
		t.Error(err)
	}
	if f.Run == nil && f.Calls == nil || f.Doc == "" || !strings.HasSuffix(f.Doc, ".") {
		t.Errorf("%s lacks its function or a sentence of documentation", name)
	}
	if !strings.Contains(f.Example, name) {
		t.Errorf("%s: the example %q does not call it", name, f.Example)
	}
	line, optional := SignatureLine(name), false
	for _, p := range f.Params {
		if !strings.Contains(line, p.Name) {
			t.Errorf("%s: %q is not in the signature %q", name, p.Name, line)
		}
		if p.Required && optional {
			t.Errorf("%s: the required %q follows an optional parameter", name, p.Name)
		}
		optional = optional || !p.Required
		if p.Default == nil {
			continue
		}
		if p.Required {
			t.Errorf("%s: %q is required and has a default", name, p.Name)
		}
		checkDefault(t, name, p)
	}
}

func checkDefault(t *testing.T, name string, p Param) {
	defer func() {
		if e := recover(); e != nil {
			t.Errorf("%s: the default of %q does not fit its kind: %v", name, p.Name, e)
		}
	}()
	c := &Call{arguments: Arguments{params: []Param{p}, bound: []any{p.Default}}}
	switch p.Kind {
	case String, Path:
		c.String(p.Name)
	case Int:
		c.Int(p.Name)
	case Float:
		c.Float(p.Name)
	case Bool:
		c.Bool(p.Name)
	case Words:
		c.Words(p.Name)
	case List:
		c.List(p.Name)
	case Map:
		c.Map(p.Name)
	}
}

func TestGeneratedDocumentation(t *testing.T) {
	page := modules.Markdown("Functions", "What a minion can run. Generated from the tables in `internal/module`.")
	path := filepath.Join("..", "..", "doc", "functions.md")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != page {
		t.Errorf("doc/functions.md is not what the tables say (%v): run go test ./internal/module -run Documentation -update", err)
	}
}

// probe is a table whose one function takes every kind of parameter.
func probe(f Function) Table {
	f.Name = "f"
	if f.Run == nil {
		f.Run = func(_ context.Context, c *Call) (any, error) { return c.bound, nil }
	}
	return Table{{Name: "m", Functions: []Function{f}}}
}

func TestArgumentsAreChecked(t *testing.T) {
	two := Function{Params: []Param{{Name: "path", Kind: String, Required: true}, {Name: "count", Kind: Int, Default: 3}}}
	star := Function{Varargs: true, Params: []Param{{Name: "name", Required: true}, {Name: "long", Kind: Bool, Default: false}}}
	tests := map[string]struct {
		f      Function
		args   []any
		kwargs map[string]any
		want   string // of the error, or of what was bound
	}{
		"all by position":       {two, []any{"p", int64(1)}, nil, `["p",1]`},
		"default":               {two, []any{"p"}, nil, `["p",3]`},
		"by name":               {two, nil, map[string]any{"count": int64(2), "path": "p"}, `["p",2]`},
		"None means default":    {two, []any{"p", nil}, nil, `["p",3]`},
		"job metadata":          {two, []any{"p"}, map[string]any{"__pub_jid": "1"}, `["p",3]`},
		"missing":               {two, nil, nil, `missing required argument "path"`},
		"None for a required":   {two, []any{nil}, nil, `argument "path": want text, got None`},
		"too many":              {two, []any{"a", int64(1), "c"}, nil, "takes at most 2 positional arguments but 3 were given"},
		"twice":                 {two, []any{"a"}, map[string]any{"path": "b"}, `got more than one value for the argument "path"`},
		"unknown":               {two, []any{"a"}, map[string]any{"zzzzz": "b"}, `unknown keyword argument "zzzzz"`},
		"unknown with a guess":  {two, []any{"a"}, map[string]any{"cuont": "b"}, `did you mean "count"?`},
		"not a number":          {two, []any{"a", "many"}, nil, `argument "count": want a whole number, got 'many'`},
		"varargs":               {star, []any{"a", "b", "c"}, nil, `["a",false]`},
		"named beside varargs":  {star, []any{"a", "b"}, map[string]any{"long": true}, `["a",true]`},
		"missing beside varags": {star, nil, map[string]any{"long": true}, `missing required argument "name"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := probe(tt.f).Run(t.Context(), Call{Function: "m.f", Args: tt.args, Kwargs: tt.kwargs})
			var argument *ArgumentError
			if errors.As(r.Err, &argument) {
				text := r.Return.(string)
				if !strings.HasPrefix(text, "Passed invalid arguments to m.f: ") || !strings.Contains(text, tt.want) || !strings.Contains(text, "m.f(") || r.Retcode != 1 {
					t.Errorf("got %q, retcode %d; want %q", text, r.Retcode, tt.want)
				}
				return
			}
			if b, _ := value.Encode(r.Return); string(b) != tt.want {
				t.Errorf("bound %s (%v), want %s", b, r.Err, tt.want)
			}
		})
	}
}

func TestKindsConvertWhatPeopleWrite(t *testing.T) {
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	list := []any{"a", int64(1)}
	tests := []struct {
		kind Kind
		in   any
		want any // an error if nil
	}{
		{String, "x", "x"}, {String, int64(5), "5"}, {String, 1.5, "1.5"}, {String, 1.0, "1.0"}, {String, true, "True"}, {String, huge, huge.String()},
		{String, list, nil}, {String, map[string]any{}, nil},
		{Int, int64(5), 5}, {Int, 5, 5}, {Int, "5", 5}, {Int, 5.0, 5}, {Int, 5.5, nil}, {Int, "", nil}, {Int, huge, nil}, {Int, list, nil},
		{Float, int64(2), 2.0}, {Float, "0.5", 0.5}, {Float, "x", nil}, {Float, true, nil},
		{Bool, true, true}, {Bool, "False", false}, {Bool, "yes", true}, {Bool, int64(0), false}, {Bool, int64(2), true}, {Bool, "maybe", nil}, {Bool, list, nil},
		{Path, "/a/../b/", "/b"}, {Path, "~/x", os.Getenv("HOME") + "/x"}, {Path, "~root/x", nil}, {Path, "a", nil}, {Path, "/a\x00b", nil}, {Path, int64(1), nil},
		{Words, "a, b,,c", []string{"a", "b", "c"}}, {Words, list, []string{"a", "1"}}, {Words, int64(7), []string{"7"}}, {Words, []any{list}, nil}, {Words, map[string]any{}, nil},
		{List, list, list}, {List, "a", []any{"a"}}, {List, map[string]any{}, nil},
		{Map, map[string]any{"a": "b"}, map[string]any{"a": "b"}}, {Map, []any{map[string]any{"a": "b"}, map[string]any{"c": "d"}}, map[string]any{"a": "b", "c": "d"}},
		{Map, "a", nil}, {Map, list, nil}, {Map, []any{map[string]any{"a": "b", "c": "d"}}, nil},
		{Any, list, list},
	}
	for _, tt := range tests {
		got, err := tt.kind.convert(tt.in)
		if tt.want == nil {
			if err == nil || !strings.Contains(err.Error(), "want "+tt.kind.String()) {
				t.Errorf("%v from %#v = %#v, %v; want an error", tt.kind, tt.in, got, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v from %#v: %v", tt.kind, tt.in, err)
			continue
		}
		same(t, tt.kind.String(), got, tt.want)
	}
}

func TestSignatures(t *testing.T) {
	for function, want := range map[string]string{
		"test.ping":       "test.ping()",
		"test.echo":       "test.echo(text)",
		"test.rand_sleep": "test.rand_sleep(max=60)",
		"test.arg":        "test.arg(*args, **kwargs)",
		"test.exception":  "test.exception(message='Test Exception')",
		"test.try":        "test.try(module, *args, return_try_exception=False, **kwargs)",
		"config.option":   "config.option(value, default='')",
		"nosuch.fun":      "",
	} {
		if got := SignatureLine(function); got != want {
			t.Errorf("SignatureLine(%q) = %q, want %q", function, got, want)
		}
	}
}

func TestPatternsSelectFunctions(t *testing.T) {
	if all := Functions(""); !slices.Contains(all, "test.ping") || !slices.IsSorted(all) {
		t.Errorf("all functions: %v", all)
	}
	for pattern, want := range map[string][]string{
		"test.ping":       {"test.ping"},
		"test.arg_*":      {"test.arg_clean", "test.arg_repr", "test.arg_type"},
		"test.[tf]r*":     {"test.true", "test.try"},
		"config":          {"config.get", "config.items", "config.option"},
		"tes":             {},
		"test.[":          {},
		"config.[!g]*":    {"config.items", "config.option"},
		"test.versions_*": {"test.versions_information", "test.versions_report"},
	} {
		if got := Functions(pattern); !slices.Equal(got, want) {
			t.Errorf("Functions(%q) = %v, want %v", pattern, got, want)
		}
	}
	doc := Docs("test.echo")["test.echo"]
	for _, want := range []string{"Return the argument.", "test.echo(text)", "CLI Example:", "    salt '*' test.echo"} {
		if !strings.Contains(doc, want) {
			t.Errorf("the documentation of test.echo lacks %q:\n%s", want, doc)
		}
	}
}

func TestUnknownFunction(t *testing.T) {
	for name, want := range map[string]string{
		"nosuch.fun":  "'nosuch.fun' is not available.",
		"test.pign":   "'test.pign' is not available. Did you mean test.ping?",
		"tests.ping":  "'tests.ping' is not available. Did you mean test.ping",
		"nosuch.ping": "Did you mean network.ping or test.ping?",
		"test":        "'test' is not available.",
		"":            "'' is not available.",
	} {
		r := bad(t, nil, name, want, nil)
		var unknown *UnknownError
		if !errors.As(r.Err, &unknown) || r.Retcode != 1 {
			t.Errorf("%s: %v, retcode %d", name, r.Err, r.Retcode)
		}
	}
}

func TestPanicEndsThatCallOnly(t *testing.T) {
	var log strings.Builder
	host := &Host{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	boom := probe(Function{Run: func(context.Context, *Call) (any, error) { panic("boom") }})
	r := boom.Run(t.Context(), Call{Function: "m.f", Host: host})
	if r.Return != "The minion function caused an exception: boom" || r.Retcode != 1 || r.Success {
		t.Errorf("got %+v", r)
	}
	if !strings.Contains(log.String(), "run.go") {
		t.Errorf("the stack is not in the debug log: %s", log.String())
	}
}

func TestCancelledBeforeStart(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("killed by root"))
	ran := false
	r := probe(Function{Run: func(context.Context, *Call) (any, error) { ran = true; return nil, nil }}).Run(ctx, Call{Function: "m.f"})
	if ran || r.Return != "ERROR: killed by root" {
		t.Errorf("ran %v, got %+v", ran, r)
	}
}

func TestCauseOfTheEndIsTold(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan struct{})
	wait := probe(Function{Run: func(ctx context.Context, _ *Call) (any, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	go func() { <-started; cancel(errors.New("killed by root")) }()
	if r := wait.Run(ctx, Call{Function: "m.f"}); r.Return != "ERROR: killed by root" {
		t.Errorf("got %+v", r)
	}
}

func TestAnswersThatReportFailure(t *testing.T) {
	for name, tt := range map[string]struct {
		v    any
		code int
	}{
		"result false":  {map[string]any{"result": false}, 1},
		"success false": {map[string]any{"success": false}, 1},
		"result true":   {map[string]any{"result": true}, 0},
		"result absent": {map[string]any{"result": nil}, 0},
		"false itself":  {false, 0},
	} {
		r := probe(Function{Run: func(context.Context, *Call) (any, error) { return tt.v, nil }}).Run(t.Context(), Call{Function: "m.f"})
		if r.Retcode != tt.code || r.Err != nil {
			t.Errorf("%s: retcode %d, err %v; want %d", name, r.Retcode, r.Err, tt.code)
		}
	}
}

func TestHintFollowsTheError(t *testing.T) {
	r := probe(Function{Run: func(context.Context, *Call) (any, error) {
		return nil, salt.WithHint(errors.New("no"), "say please")
	}}).Run(t.Context(), Call{Function: "m.f"})
	if r.Return != "ERROR: no\nHINT: say please" {
		t.Errorf("got %q", r.Return)
	}
}

func BenchmarkPing(b *testing.B) {
	host, ctx := &Host{}, context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if r := Run(ctx, Call{Function: "test.ping", Host: host}); r.Return != true {
			b.Fatal(r)
		}
	}
}

func BenchmarkUnknown(b *testing.B) {
	for b.Loop() {
		Run(context.Background(), Call{Function: "nosuch.pign"})
	}
}
