package module

import (
	"context"

	"github.com/brinebus/brine/internal/target"
)

// configModule reads the configuration of the minion.
var configModule = &Module{
	Name: "config",
	Doc:  "Functions that read the configuration of the minion.",
	Functions: []Function{
		{
			Name: "get",
			Doc: "Return a value from the minion's configuration, else its grains, else its pillar, else the default. " +
				"The key may lead into nested dictionaries, its names joined by the delimiter.",
			Example: "salt '*' config.get pkg:apache\nsalt '*' config.get lib_path '{}' delimiter=,",
			Params: []Param{
				{Name: "key", Kind: String},
				{Name: "default", Default: ""},
				{Name: "delimiter", Kind: String, Default: ":"},
				{Name: "omit_opts", Kind: Bool, Default: false},
				{Name: "omit_grains", Kind: Bool, Default: false},
				{Name: "omit_pillar", Kind: Bool, Default: false},
			},
			Run: configGet,
		},
		{
			Name:    "items",
			Doc:     "Return the whole configuration of the minion.",
			Example: `salt '*' config.items`,
			Run:     func(_ context.Context, c *Call) (any, error) { return c.Host.Config, nil },
		},
		{
			Name:    "option",
			Doc:     "Return a value from the minion's configuration, else its grains, else its pillar, else the default. The key is not split.",
			Example: `salt '*' config.option cachedir`,
			Params:  []Param{{Name: "value", Kind: String, Required: true}, {Name: "default", Default: ""}},
			Run: func(_ context.Context, c *Call) (any, error) {
				if v := c.option(c.String("value")); v != nil {
					return v, nil
				}
				return c.Any("default"), nil
			},
		},
	},
}

func configGet(_ context.Context, c *Call) (any, error) {
	omit := []bool{c.Bool("omit_opts"), c.Bool("omit_grains"), c.Bool("omit_pillar")}
	for i, source := range c.sources() {
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

// sources are where settings are looked for, in order.
func (c *Call) sources() []map[string]any {
	return []map[string]any{c.Host.Config, c.Host.grains(), c.Host.pillar()}
}

// option returns the setting of that whole name, such as "test.foo"; nil if
// there is none.
func (c *Call) option(name string) any {
	for _, source := range c.sources() {
		if v, ok := source[name]; ok {
			return v
		}
	}
	return nil
}
