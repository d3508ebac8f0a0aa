package module

import (
	"context"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/target"
)

// configModule reads the configuration of the minion.
var configModule = &function.Module{
	Name: "config",
	Doc:  "Functions that read the configuration of the minion.",
	Functions: []function.Function{
		{
			Name: "get",
			Doc: "Return a value from the minion's configuration, else its grains, else its pillar, else the default. " +
				"The key may lead into nested dictionaries, its names joined by the delimiter.",
			Example: "salt '*' config.get pkg:apache\nsalt '*' config.get lib_path '{}' delimiter=,",
			Params: []function.Param{
				{Name: "key", Kind: function.String},
				{Name: "default", Default: ""},
				{Name: "delimiter", Kind: function.String, Default: ":"},
				{Name: "omit_opts", Kind: function.Bool, Default: false},
				{Name: "omit_grains", Kind: function.Bool, Default: false},
				{Name: "omit_pillar", Kind: function.Bool, Default: false},
			},
			Run: configGet,
		},
		{
			Name:    "items",
			Doc:     "Return the whole configuration of the minion.",
			Example: `salt '*' config.items`,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return c.Host.Config, nil },
		},
		{
			Name:    "option",
			Doc:     "Return a value from the minion's configuration, else its grains, else its pillar, else the default. The key is not split.",
			Example: `salt '*' config.option cachedir`,
			Params:  []function.Param{{Name: "value", Kind: function.String, Required: true}, {Name: "default", Default: ""}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if v := configOption(c, c.String("value")); v != nil {
					return v, nil
				}
				return c.Any("default"), nil
			},
		},
	},
}

func configGet(_ context.Context, c *function.Call) (any, error) {
	omit := []bool{c.Bool("omit_opts"), c.Bool("omit_grains"), c.Bool("omit_pillar")}
	for i, source := range configSources(c) {
		if omit[i] {
			continue
		}
		if !c.Has("key") {
			return source, nil
		}
		if v, ok := target.Lookup(source, c.String("key"), c.String("delimiter")); ok {
			return v, nil
		}
	}
	return c.Any("default"), nil
}

// configSources are the places of settings, in the order of the search.
func configSources(c *function.Call) []map[string]any {
	return []map[string]any{c.Host.Config, c.Host.Facts(), c.Host.PillarData()}
}

// configOption returns the setting with that full name, such as "test.foo"; nil if there is none.
func configOption(c *function.Call, name string) any {
	for _, source := range configSources(c) {
		if v, ok := source[name]; ok {
			return v
		}
	}
	return nil
}
