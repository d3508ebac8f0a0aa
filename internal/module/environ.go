package module

import (
	"context"
	"os"

	"github.com/brinebus/brine/internal/function"
)

// environModule manages the environment of the minion's process.
var environModule = &function.Module{
	Name: "environ",
	Doc:  "Functions that read and change the environment of the minion, which the programs that it runs inherit. A change lasts until the minion ends.",
	Functions: []function.Function{
		{
			Name:    "get",
			Doc:     "Return a variable, or the default.",
			Example: "salt '*' environ.get PATH\nsalt '*' environ.get foo default=bar",
			Params:  []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "default", Default: ""}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return variable(c.String("key"), c.Any("default")), nil
			},
		},
		{
			Name:    "has_value",
			Doc:     "Return whether there is a variable, or whether it has that value.",
			Example: "salt '*' environ.has_value foo\nsalt '*' environ.has_value foo bar",
			Params:  []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "value", Kind: function.String}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				v, ok := os.LookupEnv(c.String("key"))
				return ok && (!c.Has("value") || v == c.String("value")), nil
			},
		},
		{
			Name:    "item",
			Doc:     "Return several variables.",
			Example: `salt '*' environ.item PATH,LANG`,
			Params:  []function.Param{{Name: "keys", Kind: function.Words, Required: true}, {Name: "default", Default: ""}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				found := map[string]any{}
				for _, key := range c.Words("keys") {
					found[key] = variable(key, c.Any("default"))
				}
				return found, nil
			},
		},
		{
			Name:    "items",
			Doc:     "Return all variables.",
			Example: `salt '*' environ.items`,
			Run:     func(context.Context, *function.Call) (any, error) { return environment(), nil },
		},
		{
			Name:    "setenv",
			Doc:     "Set several variables and return them; with clear_all, remove all others. With false_unsets a value of False removes its variable.",
			Example: `salt '*' environ.setenv '{foo: bar, baz: quux}'`,
			Params:  []function.Param{{Name: "environ", Kind: function.Map, Required: true}, {Name: "false_unsets", Kind: function.Bool, Default: false}, {Name: "clear_all", Kind: function.Bool, Default: false}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if c.Bool("clear_all") {
					os.Clearenv()
				}
				set := map[string]any{}
				for key, v := range c.Map("environ") {
					var err error
					if set[key], err = setVariable(key, v, c.Bool("false_unsets")); err != nil {
						return nil, err
					}
				}
				return set, nil
			},
		},
		{
			Name:    "setval",
			Doc:     "Set a variable and return its value. With false_unsets a value of False removes it.",
			Example: `salt '*' environ.setval foo bar`,
			Params:  []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "val", Required: true}, {Name: "false_unsets", Kind: function.Bool, Default: false}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return setVariable(c.String("key"), c.Any("val"), c.Bool("false_unsets"))
			},
		},
	},
}

func variable(key string, byDefault any) any {
	if v, ok := os.LookupEnv(key); ok {
		return v
	}
	return byDefault
}

// setVariable sets a variable, or removes it, and returns its new value.
func setVariable(key string, v any, falseUnsets bool) (any, error) {
	if v == false && falseUnsets {
		return nil, os.Unsetenv(key)
	}
	text, err := function.ToString(v)
	switch {
	case v == false:
		text = ""
	case err != nil:
		return nil, function.Invalid("the value of %s is not text: %s", key, repr(v))
	}
	return text, os.Setenv(key, text)
}
