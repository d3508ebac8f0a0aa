package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
)

// docModule shows what can be run.
func docModule(table func(context.Context) function.Table, wheel, minions function.Table) *function.Module {
	return &function.Module{Name: "doc", Doc: "Documentation of runners and functions.", Functions: []function.Function{
		{Name: "execution", Class: function.Shared, Doc: "Return the documentation of the functions of minions.", Example: "salt-run doc.execution 'test.*'",
			Params: []function.Param{{Name: "pattern", Kind: function.String}},
			Run:    func(_ context.Context, c *function.Call) (any, error) { return docs(minions, c) }},
		{Name: "runner", Class: function.Shared, Doc: "Return the documentation of the runners.", Example: "salt-run doc.runner",
			Params: []function.Param{{Name: "pattern", Kind: function.String}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return docs(table(ctx), c)
			}},
		{Name: "wheel", Class: function.Shared, Doc: "Return the documentation of the wheel functions.", Example: "salt-run doc.wheel",
			Params: []function.Param{{Name: "pattern", Kind: function.String}},
			Run:    func(_ context.Context, c *function.Call) (any, error) { return docs(wheel, c) }},
	}}
}

// docs returns the documentation of the functions that match the argument, or nil.
func docs(table function.Table, c *function.Call) (any, error) {
	pattern := c.String("pattern")
	found := table.Docs(pattern)
	if len(found) == 0 && pattern != "" {
		return nil, fmt.Errorf("nothing of that name is documented: %q", pattern)
	}
	return found, nil
}

// errorModule fails on purpose, to test how failures are handled.
func errorModule() *function.Module {
	return &function.Module{Name: "error", Doc: "A runner that fails, for tests.", Functions: []function.Function{
		{Name: "error", Class: function.Shared, Doc: "Fail, with a message if there is one; else return False.", Example: "salt-run error.error message='Test'",
			Params: []function.Param{{Name: "name", Kind: function.String}, {Name: "message", Kind: function.String}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				switch name, message := c.String("name"), c.String("message"); {
				case name != "":
					return nil, fmt.Errorf("%s: %s", name, message)
				case message != "":
					return nil, errors.New(message)
				}
				return false, nil
			}},
	}}
}

// eventModule fires events of the master.
func eventModule(h *Host) *function.Module {
	return &function.Module{Name: "event", Doc: "Events on the master's bus.", Functions: []function.Function{
		{Name: "send", Class: function.Changes, Doc: "Fire an event on the master's bus. The data is stored as it is given.", Example: `salt-run event.send my/tag '{"a": 1}'`,
			Params: []function.Param{{Name: "tag", Kind: function.String, Required: true}, {Name: "data", Kind: function.Any}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				data := c.Any("data")
				if data == nil {
					data = map[string]any{}
				}
				return true, h.SendEvent(ctx, c.String("tag"), data)
			}},
	}}
}

// testModule is for testing runners.
func testModule(*Host) *function.Module {
	return &function.Module{Name: "test", Doc: "Functions to try out runners with.", Functions: []function.Function{
		{Name: "arg", Class: function.Shared, Doc: "Return the arguments.", Example: "salt-run test.arg 1 two a=b", Varargs: true, Kwargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return map[string]any{"args": c.Varargs(), "kwargs": c.Extra()}, nil
			}},
		{Name: "metasyntactic", Class: function.Shared, Doc: "Return the metasyntactic variables of a language.", Example: "salt-run test.metasyntactic",
			Params: []function.Param{{Name: "locality", Kind: function.String, Default: "us"}}, Run: metasyntactic},
		{Name: "raw_arg", Class: function.Shared, Doc: "Return the arguments as arg does.", Example: "salt-run test.raw_arg 1 two a=b", Varargs: true, Kwargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return map[string]any{"args": c.Varargs(), "kwargs": c.Extra()}, nil
			}},
		{Name: "sleep", Class: function.Shared, Doc: "Wait some seconds and return them.", Example: "salt-run test.sleep 2",
			Params: []function.Param{{Name: "s_time", Kind: function.Float, Default: 10.0}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				t := time.NewTimer(time.Duration(c.Float("s_time") * float64(time.Second)))
				defer t.Stop()
				select {
				case <-t.C:
					return c.Float("s_time"), nil
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}},
	}}
}

// metasyntactic returns the placeholder words of a language, as Salt has them.
func metasyntactic(_ context.Context, c *function.Call) (any, error) {
	words, ok := metasyntacticWords[c.String("locality")]
	if !ok {
		return nil, fmt.Errorf("locality %q: it is one of %s", c.String("locality"), strings.Join(slices.Sorted(maps.Keys(metasyntacticWords)), ", "))
	}
	out := []any{}
	for _, w := range strings.Fields(words) {
		out = append(out, w)
	}
	return out, nil
}

var metasyntacticWords = map[string]string{
	"us": "foo bar baz qux quux quuz corge grault garply waldo fred plugh xyzzy thud",
	"uk": "wibble wobble wubble flob",
}
