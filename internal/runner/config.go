package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
		{Name: "reload", Class: function.Secret, Doc: "Reload the configuration, as SIGHUP does. Return the settings that have changed, and those that need a restart. With a mistake in it, fail with all mistakes and change nothing. In a cluster, reload that of all members, each from its own files, and return below members the result of each: one with a mistake, or that is not reached, has an error there, and the exit code is 1.",
			Example: "salt-run config.reload\nsalt-master --check && salt-run config.reload",
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				own, err := h.Reload()
				if err != nil {
					err = NotReloaded(err)
				}
				name, others, alone := h.others(ctx)
				if errors.Is(alone, ErrAlone) {
					return own.data(), err
				}
				if alone != nil {
					return nil, errors.Join(err, fmt.Errorf("the other members were not asked: %w", alone))
				}
				members := map[string]any{}
				for _, m := range append(others, MemberReload{name, own, err}) {
					if m.Err != nil {
						c.SetRetcode(1)
						members[m.Name] = map[string]any{"error": withHint(m.Err)}
						continue
					}
					members[m.Name] = m.data()
				}
				return map[string]any{"members": members}, nil
			}},
	}}
}

// others reloads the configuration of the other members.
func (h *Host) others(ctx context.Context) (self string, others []MemberReload, err error) {
	if h.Reloader == nil {
		return "", nil, ErrAlone
	}
	return h.ReloadOthers(ctx)
}

// NotReloaded is the error of a master whose files have the mistakes err.
func NotReloaded(err error) error {
	return salt.WithHint(fmt.Errorf("the old configuration stays in force:\n%w", &withHints{err}), "'salt-master --check' tells the same without a daemon")
}

// withHints is an error of several, each with its own hint, which the hint of the whole would replace.
type withHints struct{ error }

func (e *withHints) Unwrap() error { return e.error }
func (e *withHints) Error() string { return Mistakes(e.error) }

// Mistakes is the text of an error of several with the hint of each.
func Mistakes(err error) string {
	var many interface {
		error
		Unwrap() []error
	}
	if errors.As(err, &many) && many.Error() == err.Error() {
		var lines []string
		for _, one := range many.Unwrap() {
			lines = append(lines, Mistakes(one))
		}
		return strings.Join(lines, "\n")
	}
	text := err.Error()
	if hint := salt.Hint(err); hint != "" {
		text += "\n  hint: " + hint
	}
	return text
}

func (r Reloaded) data() map[string]any {
	return map[string]any{"changed": words(r.Changed), "restart": words(r.Restart)}
}

// withHint is an error in the result of a member, which has no other place for the hint.
func withHint(err error) string {
	text := err.Error()
	if hint := salt.Hint(err); hint != "" {
		text += " (" + hint + ")"
	}
	return text
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
