package runner

import (
	"context"
	"slices"
	"strings"

	"brine/internal/module"
	"brine/internal/target"
)

// settingsModule reads the configuration.
func settingsModule(h *Host) *module.Module {
	return &module.Module{Name: "config", Doc: "The configuration of the master.", Functions: []module.Function{
		{Name: "get", Doc: "Return a setting of the master, or the default. The key may lead into nested dictionaries, its names joined by the delimiter. What is secret is not shown.",
			Example: "salt-run config.get file_roots\nsalt-run config.get file_roots:base",
			Params:  []module.Param{{Name: "key", Kind: module.String, Required: true}, {Name: "default", Default: ""}, {Name: "delimiter", Kind: module.String, Default: ":"}},
			Run: func(_ context.Context, c *module.Call) (any, error) {
				if v, ok := target.Lookup(h.Config, c.String("key"), c.String("delimiter")); ok {
					return v, nil
				}
				return c.Any("default"), nil
			}},
	}}
}

// configModule reads the master's configuration.
func configModule(h *Host) *module.Module {
	return &module.Module{Name: "config", Doc: "The configuration of the master.", Functions: []module.Function{
		{Name: "values", Doc: "Return the configuration of the master. What is secret in it is not shown.", Example: "salt-run --wheel config.values",
			Run: func(context.Context, *module.Call) (any, error) { return h.Config, nil }},
	}}
}

// hidden is shown in the place of a secret.
const hidden = "** hidden **"

// secretWords are what the names of settings contain whose values are secrets.
var secretWords = []string{"password", "passwd", "secret", "token_key", "bindpw"}

// Disclose returns a configuration without the secrets in it: what a runner
// returns is in the journal, and read by those who may only look.
func Disclose(config map[string]any) map[string]any {
	open, _ := disclosed(config).(map[string]any)
	return open
}

// disclosed is Disclose for any part of a configuration.
func disclosed(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for name, value := range x {
			if out[name] = disclosed(value); isSecret(name) && value != nil {
				out[name] = hidden
			}
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, value := range x {
			out[i] = disclosed(value)
		}
		return out
	}
	return v
}

func isSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(name, w) })
}
