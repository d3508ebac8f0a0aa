package module

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// pit is a Mine that remembers what it was asked.
type pit struct {
	changed []mine.Change
	asked   mine.Query
	items   []mine.Item
	err     error
}

func (p *pit) ChangeMine(_ context.Context, c mine.Change) error {
	p.changed = append(p.changed, c)
	return p.err
}

func (p *pit) ReadMine(_ context.Context, q mine.Query) ([]mine.Item, error) {
	p.asked = q
	return p.items, p.err
}

func TestMineFunctions(t *testing.T) {
	for name, c := range map[string]struct {
		setting string
		want    []mineFunction
		fails   string
	}{
		"nothing":          {"null", nil, ""},
		"no arguments":     {`{"test.ping": []}`, []mineFunction{{name: "test.ping"}}, ""},
		"no value":         {`{"test.ping": null}`, []mineFunction{{name: "test.ping"}}, ""},
		"a list of names":  {`["a.b", "c.d"]`, []mineFunction{{name: "a.b"}, {name: "c.d"}}, ""},
		"arguments":        {`{"a.b": ["eth0", 1, {"k": "v"}, {"l": "w"}]}`, []mineFunction{{name: "a.b", args: []any{"eth0", int64(1)}, kwargs: map[string]any{"k": "v", "l": "w"}}}, ""},
		"keywords":         {`{"a.b": {"k": "v"}}`, []mineFunction{{name: "a.b", kwargs: map[string]any{"k": "v"}}}, ""},
		"alias, list":      {`{"ip": [{"mine_function": "a.b"}, "eth0"]}`, []mineFunction{{name: "ip", function: "a.b", args: []any{"eth0"}}}, ""},
		"alias, dict":      {`{"ip": {"mine_function": "a.b", "k": 1}}`, []mineFunction{{name: "ip", function: "a.b", kwargs: map[string]any{"k": int64(1)}}}, ""},
		"for some":         {`{"ip": [{"mine_function": "a.b"}, {"allow_tgt": "web*"}]}`, []mineFunction{{name: "ip", function: "a.b", entry: mine.Entry{Allow: "web*"}}}, ""},
		"for some, kind":   {`{"a.b": {"allow_tgt": "G@r:x", "allow_tgt_type": "compound"}}`, []mineFunction{{name: "a.b", entry: mine.Entry{Allow: "G@r:x", AllowType: "compound"}}}, ""},
		"for a list":       {`{"a.b": {"allow_tgt": ["x", "y"], "allow_tgt_type": "list"}}`, []mineFunction{{name: "a.b", entry: mine.Entry{Allow: "x,y", AllowType: "list"}}}, ""},
		"several":          {`{"b.b": [], "a.a": []}`, []mineFunction{{name: "a.a"}, {name: "b.b"}}, ""},
		"text":             {`"test.ping"`, nil, "a dictionary from names to arguments"},
		"text below":       {`{"a.b": "eth0"}`, nil, "the arguments of a.b"},
		"a list of others": {`[1]`, nil, "their names"},
		"no function name": {`{"a": {"mine_function": 5}}`, nil, "the name of a function"},
	} {
		v, err := value.Decode([]byte(c.setting))
		if err != nil {
			t.Fatal(err)
		}
		before := value.Repr(v)
		got, err := parseMineFunctions(v)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want an error with %q", name, err, c.fails)
			}
			continue
		}
		for i := range got {
			got[i].shown = nil
			if len(got[i].kwargs) == 0 {
				got[i].kwargs = nil
			}
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
		if value.Repr(v) != before {
			t.Errorf("%s: the setting was changed to %s", name, value.Repr(v))
		}
	}
}

func TestMineChanges(t *testing.T) {
	config := map[string]any{"mine_functions": map[string]any{"test.ping": nil, "who": []any{map[string]any{"mine_function": "test.echo"}, "conf"}, "gone.gone": nil}}
	known := minionData{pillar: map[string]any{
		"mine_functions": map[string]any{"who": []any{map[string]any{"mine_function": "test.echo"}, "pillar"}, "more": map[string]any{"mine_function": "test.echo", "text": "x", "allow_tgt": "web*"}},
	}}
	boom := map[string]any{"bad": map[string]any{"mine_function": "test.exception"}, "good": map[string]any{"mine_function": "test.ping"}}
	for name, c := range map[string]struct {
		fun    string
		args   []any
		kwargs map[string]any
		want   string // the change
		fails  string
	}{
		"send":              {"mine.send", []any{"test.ping"}, nil, "{false [] map[test.ping:{{true}  }]}", ""},
		"send, arguments":   {"mine.send", []any{"test.arg", "a"}, map[string]any{"k": "v"}, "{false [] map[test.arg:{{map[args:[a] kwargs:map[k:v]]}  }]}", ""},
		"send, alias":       {"mine.send", []any{"up", "x"}, map[string]any{"mine_function": "test.echo", "allow_tgt": "web*"}, "{false [] map[up:{{x} web* }]}", ""},
		"send, for a list":  {"mine.send", []any{"test.ping"}, map[string]any{"allow_tgt": []any{"a", "b"}, "allow_tgt_type": "list"}, "{false [] map[test.ping:{{true} a,b list}]}", ""},
		"send, unknown":     {"mine.send", []any{"test.nosuch"}, nil, "", "not available"},
		"send, no function": {"mine.send", []any{"up"}, nil, "", "invalid function name"},
		"send, fails":       {"mine.send", []any{"up"}, map[string]any{"mine_function": "test.exception"}, "", "exception"},
		"send, itself":      {"mine.send", []any{"up"}, map[string]any{"mine_function": "mine.update"}, "", "cannot be kept"},
		"delete":            {"mine.delete", []any{"up"}, nil, "{false [up] map[]}", ""},
		"flush":             {"mine.flush", nil, nil, "{true [] map[]}", ""},
		"update":            {"mine.update", nil, nil, "{false [] map[more:{{x} web* } test.ping:{{true}  } who:{{conf}  }]}", ""},
		"update, clear":     {"mine.update", nil, map[string]any{"clear": true}, "{true [] map[more:{{x} web* } test.ping:{{true}  } who:{{conf}  }]}", ""},
		"update, given":     {"mine.update", nil, map[string]any{"mine_functions": []any{"test.ping"}}, "{false [] map[test.ping:{{true}  }]}", ""},
		"update, one fails": {"mine.update", nil, map[string]any{"mine_functions": boom}, "{false [] map[good:{{true}  }]}", "bad is not in the mine"},
	} {
		p := &pit{}
		res := Run(t.Context(), function.Call{Function: salt.Function(c.fun), Args: c.args, Kwargs: c.kwargs, Host: &function.Host{Services: &Services{Mine: p}, Config: config, Data: known}, Reach: salt.Reach{Free: true}})
		if got := strings.Trim(fmt.Sprint(p.changed), "[]"); got != strings.Trim(c.want, "[]") {
			t.Errorf("%s: changed %s, want %s", name, got, c.want)
		}
		if c.fails == "" && res.Err != nil || c.fails != "" && (res.Err == nil || !strings.Contains(fmt.Sprint(res.Return), c.fails)) {
			t.Errorf("%s: %v, %v; want an error with %q", name, res.Return, res.Err, c.fails)
		}
	}
	if res := Run(t.Context(), function.Call{Function: "mine.update", Host: &function.Host{Services: &Services{Mine: &pit{err: errors.New("unused")}}}, Reach: salt.Reach{Free: true}}); res.Return != nil || res.Err != nil {
		t.Errorf("nothing is configured: %+v", res)
	}
}

func TestMineGet(t *testing.T) {
	items := []mine.Item{{ID: "me", Name: "a", Data: value.Value{V: int64(1)}}, {ID: "you", Name: "a", Data: value.Value{V: int64(2)}}, {ID: "you", Name: "b", Data: value.Value{V: int64(3)}}}
	for name, c := range map[string]struct {
		args   []any
		kwargs map[string]any
		err    error
		asked  mine.Query
		want   string
		code   int
	}{
		"one":            {[]any{"*", "a"}, nil, nil, mine.Query{Target: "*", TargetType: "glob", Names: []string{"a"}}, "{'me': 1, 'you': 3}", 0},
		"several":        {[]any{"*", "a,b"}, nil, nil, mine.Query{Target: "*", TargetType: "glob", Names: []string{"a", "b"}}, "{'a': {'me': 1, 'you': 2}, 'b': {'you': 3}}", 0},
		"a list":         {[]any{[]any{"me", "you"}, []any{"a"}, "list"}, nil, nil, mine.Query{Target: "me,you", TargetType: "list", Names: []string{"a"}}, "{'a': {'me': 1, 'you': 2}, 'b': {'you': 3}}", 0},
		"without itself": {[]any{"*", "a,b"}, map[string]any{"exclude_minion": true}, nil, mine.Query{Target: "*", TargetType: "glob", Names: []string{"a", "b"}}, "{'a': {'you': 2}, 'b': {'you': 3}}", 0},
		"old name":       {[]any{"G@a:b", "a,b"}, map[string]any{"expr_form": "compound"}, nil, mine.Query{Target: "G@a:b", TargetType: "compound", Names: []string{"a", "b"}}, "{'a': {'me': 1, 'you': 2}, 'b': {'you': 3}}", 0},
		"refused":        {[]any{"*", "a"}, nil, function.ErrRefused, mine.Query{Target: "*", TargetType: "glob", Names: []string{"a"}}, "'ERROR: refused'", 77},
		"no master":      {[]any{"*", "a"}, nil, function.ErrUnavailable, mine.Query{Target: "*", TargetType: "glob", Names: []string{"a"}}, "'ERROR: not available here'", 69},
	} {
		p := &pit{items: slices.Clone(items), err: c.err}
		res := Run(t.Context(), function.Call{Function: "mine.get", Args: c.args, Kwargs: c.kwargs, Host: &function.Host{ID: "me", Services: &Services{Mine: p}}})
		if got := value.Repr(res.Return); got != c.want || res.Retcode != c.code || !reflect.DeepEqual(p.asked, c.asked) {
			t.Errorf("%s: %s, return code %d, asked %+v; want %s, %d, %+v", name, got, res.Retcode, p.asked, c.want, c.code, c.asked)
		}
	}
	if res := Run(t.Context(), function.Call{Function: "mine.get", Args: []any{"*", "a"}}); !errors.Is(res.Err, function.ErrUnavailable) || res.Retcode != 69 {
		t.Errorf("without a master: %+v, want ErrUnavailable and 69", res)
	}
}
