package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/module"
)

// docModule shows what there is to run.
func docModule(table func(context.Context) module.Table, wheel module.Table) *module.Module {
	return &module.Module{Name: "doc", Doc: "Documentation of runners and functions.", Functions: []module.Function{
		{Name: "execution", Class: module.Shared, Doc: "Return the documentation of the functions of minions.", Example: "salt-run doc.execution 'test.*'",
			Params: []module.Param{{Name: "pattern", Kind: module.String}},
			Run:    func(_ context.Context, c *module.Call) (any, error) { return module.Docs(c.String("pattern")), nil }},
		{Name: "runner", Class: module.Shared, Doc: "Return the documentation of the runners.", Example: "salt-run doc.runner",
			Params: []module.Param{{Name: "pattern", Kind: module.String}},
			Run: func(ctx context.Context, c *module.Call) (any, error) {
				return table(ctx).Docs(c.String("pattern")), nil
			}},
		{Name: "wheel", Class: module.Shared, Doc: "Return the documentation of the wheel functions.", Example: "salt-run doc.wheel",
			Params: []module.Param{{Name: "pattern", Kind: module.String}},
			Run:    func(_ context.Context, c *module.Call) (any, error) { return wheel.Docs(c.String("pattern")), nil }},
	}}
}

// errorModule fails, to try out how failures are handled.
func errorModule() *module.Module {
	return &module.Module{Name: "error", Doc: "Failure on demand.", Functions: []module.Function{
		{Name: "error", Class: module.Shared, Doc: "Fail, with a message if there is one; else return False.", Example: "salt-run error.error message='Test'",
			Params: []module.Param{{Name: "name", Kind: module.String}, {Name: "message", Kind: module.String}},
			Run: func(_ context.Context, c *module.Call) (any, error) {
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
func eventModule(h *Host) *module.Module {
	return &module.Module{Name: "event", Doc: "Events on the master's bus.", Functions: []module.Function{
		{Name: "send", Class: module.Changes, Doc: "Fire an event on the master's bus. The data is stored as it is given.", Example: `salt-run event.send my/tag '{"a": 1}'`,
			Params: []module.Param{{Name: "tag", Kind: module.String, Required: true}, {Name: "data", Kind: module.Any}},
			Run: func(ctx context.Context, c *module.Call) (any, error) {
				data := c.Any("data")
				if data == nil {
					data = map[string]any{}
				}
				return true, h.SendEvent(ctx, c.String("tag"), data)
			}},
	}}
}

// testModule is for trying out runners.
func testModule(*Host) *module.Module {
	return &module.Module{Name: "test", Doc: "Functions to try out runners with.", Functions: []module.Function{
		{Name: "arg", Class: module.Shared, Doc: "Return the arguments.", Example: "salt-run test.arg 1 two a=b", Varargs: true, Kwargs: true,
			Run: func(_ context.Context, c *module.Call) (any, error) {
				return map[string]any{"args": c.Varargs(), "kwargs": c.Extra()}, nil
			}},
		{Name: "metasyntactic", Class: module.Shared, Doc: "Return the metasyntactic variables of a language.", Example: "salt-run test.metasyntactic",
			Params: []module.Param{{Name: "locality", Kind: module.String, Default: "us"}}, Run: metasyntactic},
		{Name: "raw_arg", Class: module.Shared, Doc: "Return the arguments as arg does.", Example: "salt-run test.raw_arg 1 two a=b", Varargs: true, Kwargs: true,
			Run: func(_ context.Context, c *module.Call) (any, error) {
				return map[string]any{"args": c.Varargs(), "kwargs": c.Extra()}, nil
			}},
		{Name: "sleep", Class: module.Shared, Doc: "Wait some seconds and return them.", Example: "salt-run test.sleep 2",
			Params: []module.Param{{Name: "s_time", Kind: module.Float, Default: 10.0}},
			Run: func(ctx context.Context, c *module.Call) (any, error) {
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

// metasyntactic returns the words of a language, as Salt has them.
func metasyntactic(_ context.Context, c *module.Call) (any, error) {
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
