package runner

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// settingsModule reads the configuration.
func settingsModule(h *Host) *function.Module {
	return &function.Module{Name: "config", Doc: "The configuration of the master.", Functions: []function.Function{
		{Name: "get", Class: function.Secret, Doc: "Return a setting of the master, or the default. The key may lead into nested dictionaries, its names joined by the delimiter. Secrets are not shown.",
			Example: "salt-run config.get file_roots\nsalt-run config.get file_roots:base",
			Params:  []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "default", Default: ""}, {Name: "delimiter", Kind: function.String, Default: ":"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if v, ok := target.Lookup(h.Config, c.String("key"), c.String("delimiter")); ok {
					return v, nil
				}
				return c.Any("default"), nil
			}},
		{Name: "reload", Class: function.Secret, Doc: "Reload the configuration, as SIGHUP does. Return the settings that have changed, and those that need a restart. With a mistake in it, fail with all mistakes and change nothing.",
			Example: "salt-run config.reload\nsalt-master --check && salt-run config.reload",
			Run: func(context.Context, *function.Call) (any, error) {
				r, err := h.Reload()
				if err != nil {
					return nil, salt.WithHint(fmt.Errorf("the old configuration stays in force:\n%w", err), "'salt-master --check' tells the same without a daemon")
				}
				return map[string]any{"changed": words(r.Changed), "restart": words(r.Restart)}, nil
			}},
	}}
}

func words(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// configModule reads the master's configuration.
func configModule(h *Host) *function.Module {
	return &function.Module{Name: "config", Doc: "The configuration of the master.", Functions: []function.Function{
		{Name: "values", Class: function.Secret, Doc: "Return the configuration of the master. Secrets in it are not shown.", Example: "salt-run --wheel config.values",
			Run: func(context.Context, *function.Call) (any, error) { return h.Config, nil }},
	}}
}
