package function

import (
	"context"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

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

func TestCauseOfTheEndIsReported(t *testing.T) {
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

// A function that does more than its table row declares is stopped, also for operators.
func TestAFunctionThatExceedsItsDeclarationIsStopped(t *testing.T) {
	table := Table{{Name: "m", Functions: []Function{
		{Name: "f", Calls: &Calls{Read: Nothing, Run: func(ctx context.Context, _ *Call, r *Caller) (any, error) {
			res := r.Call(ctx, salt.Command{Function: "m.g"})
			return res.Return, res.Err
		}}},
		{Name: "g", Run: func(context.Context, *Call) (any, error) { return "ran", nil }},
	}}}
	if r := table.Run(t.Context(), Call{Function: "m.f", Reach: salt.Reach{Free: true}}); !errors.Is(r.Err, ErrRefused) {
		t.Errorf("it ran: %+v", r)
	}
}
