package module

import (
	"context"
	"maps"
	"slices"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/target"
)

// pillarModule reads the minion's pillar.
var pillarModule = &function.Module{
	Name: "pillar",
	Doc:  "Functions that read the pillar of the minion. While the master's pillar files have a mistake, they return the last good pillar with the mistakes under `_errors`, and end with 1.",
	Functions: []function.Function{
		{
			Name:    "get",
			Doc:     "Return a pillar value, which may lie within nested ones, else the default.",
			Example: `salt '*' pillar.get pkg:apache`,
			Params:  []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "default", Default: ""}, {Name: "delimiter", Kind: function.String, Default: ":"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				data := pillarOf(c)
				v, ok := target.Lookup(data, c.String("key"), c.String("delimiter"))
				if !ok {
					v = c.Any("default")
				}
				return withErrors(data, c.String("key"), v), nil
			},
		},
		{
			Name:    "item",
			Doc:     "Return the named pillar values.",
			Example: `salt '*' pillar.item foo bar:baz`,
			Params:  []function.Param{{Name: "default", Default: ""}, {Name: "delimiter", Kind: function.String, Default: ":"}},
			Varargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				data, found := pillarOf(c), map[string]any{}
				if mistakes, ok := data[errorsKey]; ok {
					found[errorsKey] = mistakes
				}
				for _, name := range c.VarWords() {
					v, ok := target.Lookup(data, name, c.String("delimiter"))
					if !ok {
						v = c.Any("default")
					}
					found[name] = v
				}
				return found, nil
			},
		},
		{
			Name:    "items",
			Doc:     "Return the whole pillar.",
			Example: `salt '*' pillar.items`,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return pillarOf(c), nil },
		},
		{
			Name:    "keys",
			Doc:     "Return the names within a pillar value.",
			Example: `salt '*' pillar.keys web:sites`,
			Params:  []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "delimiter", Kind: function.String, Default: ":"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				v, ok := target.Lookup(pillarOf(c), c.String("key"), c.String("delimiter"))
				m, isMap := v.(map[string]any)
				if !ok || !isMap {
					return nil, function.Invalid("the pillar %s is not a dictionary", c.String("key"))
				}
				return slices.Sorted(maps.Keys(m)), nil
			},
		},
		{
			Name:    "ls",
			Doc:     "Return the names of the outermost pillar values.",
			Example: `salt '*' pillar.ls`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return slices.Sorted(maps.Keys(pillarOf(c))), nil
			},
		},
		{
			Name:    "obfuscate",
			Doc:     "Return the whole pillar with the type of each value instead of the value.",
			Example: `salt '*' pillar.obfuscate`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				data := maps.Clone(pillarOf(c))
				for name, v := range data {
					if name != errorsKey { // it contains no values
						data[name] = kindsOf(v)
					}
				}
				return data, nil
			},
		},
		{
			Name:    "raw",
			Doc:     "Return the whole pillar as the minion holds it, or one outermost value.",
			Example: `salt '*' pillar.raw key=roles`,
			Params:  []function.Param{{Name: "key", Kind: function.String}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				data := pillarOf(c)
				if name := c.String("key"); c.Has("key") {
					return withErrors(data, name, data[name]), nil
				}
				return data, nil
			},
		},
	},
}

// errorsKey is the key for the errors of a pillar, as in Salt.
const errorsKey = "_errors"

// pillarOf returns the pillar for a function. If it has errors, they are a key of it, and the
// return code is 1: a reader must not mistake an old pillar for the intended one.
func pillarOf(c *function.Call) map[string]any {
	data, mistakes := c.Host.PillarData(), c.Host.PillarMistakes()
	if len(mistakes) == 0 {
		return data
	}
	c.SetRetcode(1)
	data = maps.Clone(data)
	if data == nil {
		data = map[string]any{}
	}
	data[errorsKey] = mistakes
	return data
}

// kindsOf replaces each value in v with the name of its Python type.
func kindsOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, one := range v {
			out[name] = kindsOf(one)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			out[i] = kindsOf(one)
		}
		return out
	case nil:
		return "<NoneType>"
	case bool:
		return "<bool>"
	case int64:
		return "<int>"
	case float64:
		return "<float>"
	}
	return "<str>"
}

// withErrors returns one value of a pillar, together with the errors of the pillar if there are
// any.
func withErrors(data map[string]any, key string, v any) any {
	mistakes, ok := data[errorsKey]
	if !ok || key == errorsKey {
		return v
	}
	return map[string]any{key: v, errorsKey: mistakes}
}
