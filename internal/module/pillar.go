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
	Doc:  "Functions that read the pillar of the minion.",
	Functions: []function.Function{
		{
			Name:    "get",
			Doc:     "Return a pillar value, which may lie within nested ones, else the default.",
			Example: `salt '*' pillar.get pkg:apache`,
			Params:  []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "default", Default: ""}, {Name: "delimiter", Kind: function.String, Default: ":"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if v, ok := target.Lookup(c.Host.PillarData(), c.String("key"), c.String("delimiter")); ok {
					return v, nil
				}
				return c.Any("default"), nil
			},
		},
		{
			Name:    "item",
			Doc:     "Return the named pillar values.",
			Example: `salt '*' pillar.item foo bar:baz`,
			Params:  []function.Param{{Name: "default", Default: ""}, {Name: "delimiter", Kind: function.String, Default: ":"}},
			Varargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				found := map[string]any{}
				for _, name := range c.VarWords() {
					v, ok := target.Lookup(c.Host.PillarData(), name, c.String("delimiter"))
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
			Run:     func(_ context.Context, c *function.Call) (any, error) { return c.Host.PillarData(), nil },
		},
		{
			Name:    "keys",
			Doc:     "Return the names within a pillar value.",
			Example: `salt '*' pillar.keys web:sites`,
			Params:  []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "delimiter", Kind: function.String, Default: ":"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				v, ok := target.Lookup(c.Host.PillarData(), c.String("key"), c.String("delimiter"))
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
				return slices.Sorted(maps.Keys(c.Host.PillarData())), nil
			},
		},
		{
			Name:    "raw",
			Doc:     "Return the whole pillar as the minion holds it, or one outermost value.",
			Example: `salt '*' pillar.raw key=roles`,
			Params:  []function.Param{{Name: "key", Kind: function.String}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if c.Has("key") {
					return c.Host.PillarData()[c.String("key")], nil
				}
				return c.Host.PillarData(), nil
			},
		},
	},
}
