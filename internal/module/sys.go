package module

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// sysModule describes the available functions.
var sysModule = &function.Module{
	Name: "sys",
	Doc:  "Functions that show what the minion can run.",
	Functions: []function.Function{
		{
			Name:    "argspec",
			Doc:     "Return the parameters of the functions that the pattern selects: a function, a module or a glob.",
			Example: "salt '*' sys.argspec cmd.run\nsalt '*' sys.argspec 'test.arg*'",
			Params:  []function.Param{{Name: "module", Kind: function.String, Default: ""}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				specs := map[string]any{}
				c.Available(ctx).Each(c.String("module"), func(m *function.Module, f *function.Function) { specs[m.Name+"."+f.Name] = argspec(f) })
				return specs, nothingSelected(ctx, c, len(specs), c.String("module"))
			},
		},
		{
			Name:    "doc",
			Doc:     "Return the documentation of functions: all, or those that the arguments select, each a function, a module or a glob.",
			Example: "salt '*' sys.doc\nsalt '*' sys.doc cmd test.ping\nsalt '*' sys.doc 'network.*'",
			Varargs: true,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				docs := map[string]any{}
				for _, pattern := range givenPatterns(c) {
					for name, doc := range c.Available(ctx).Docs(pattern) {
						docs[name] = doc
					}
				}
				return docs, nothingSelected(ctx, c, len(docs), givenPatterns(c)...)
			},
		},
		{
			Name:    "list_functions",
			Doc:     "Return the names of functions: all, or those that the arguments select, each a module or a glob.",
			Example: "salt '*' sys.list_functions\nsalt '*' sys.list_functions file 'sys.list_*'",
			Varargs: true,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				names := []string{}
				for _, pattern := range givenPatterns(c) {
					names = append(names, c.Available(ctx).Functions(pattern)...)
				}
				slices.Sort(names)
				return slices.Compact(names), nil
			},
		},
		{
			Name:    "list_modules",
			Doc:     "Return the names of modules: all, or those that match one of the globs.",
			Example: "salt '*' sys.list_modules\nsalt '*' sys.list_modules 's*'",
			Varargs: true,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return selectNames(c.Available(ctx).Names(), givenPatterns(c)), nil
			},
		},
		{
			Name:    "list_returners",
			Doc:     "Return the names of the returners that the minion has: all, or those that match one of the globs.",
			Example: `salt '*' sys.list_returners`,
			Varargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return selectNames(returnerNames(c.Host), givenPatterns(c)), nil
			},
		},
		{
			Name:    "list_runners",
			Doc:     "Return the names of the master's runners: all, or those that match one of the globs. The master is asked for doc.runner, which its setting peer_run must allow.",
			Example: "salt-call sys.list_runners\nsalt-call sys.list_runners 'm*'",
			Varargs: true,
			Calls:   &function.Calls{Read: docRunner, Run: listRunners},
		},
		{
			Name:    "reload_modules",
			Doc:     "Return True. Programs that were added are found when they are called, so there is nothing to reload. Scripts for Salt can call it nevertheless.",
			Example: `salt '*' sys.reload_modules`,
			Run:     func(context.Context, *function.Call) (any, error) { return true, nil },
		},
	},
}

func docRunner(*function.Arguments) function.Reading {
	return function.Reading{Inner: []function.Inner{{Way: function.ByMaster, Command: salt.Command{Function: "doc.runner"}}}}
}

func listRunners(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	publisher, err := r.Publisher()
	if err != nil {
		return nil, function.Unavailable("connection to a master")
	}
	answer, err := publisher.Runner(ctx, function.RunnerCall{Command: docRunner(nil).Inner[0].Command, Timeout: toolTimeout})
	docs, _ := answer.Return.(map[string]any)
	var names []string
	for name := range docs {
		names = append(names, salt.Function(name).Module())
	}
	slices.Sort(names)
	return selectNames(slices.Compact(names), givenPatterns(c)), err
}

// givenPatterns returns the positional arguments; without any, a pattern that matches everything.
func givenPatterns(c *function.Call) []string {
	if words := c.VarWords(); len(words) > 0 {
		return words
	}
	return []string{""}
}

// nothingSelected returns an error if patterns without wildcards matched nothing: then the name is
// wrong. A glob may match nothing.
func nothingSelected(ctx context.Context, c *function.Call, found int, patterns ...string) error {
	if found > 0 || strings.ContainsAny(strings.Join(patterns, ""), "*?[") {
		return nil
	}
	name := strings.Join(patterns, " ")
	if strings.Contains(name, ".") {
		return &function.UnknownError{Function: salt.Function(name), Nearest: c.Available(ctx).Suggest(name)}
	}
	return fmt.Errorf("there is no module %q", name)
}

func selectNames(names, patterns []string) []string {
	selected := []string{}
	for _, name := range names {
		if slices.ContainsFunc(patterns, func(p string) bool { return p == "" || fnmatch.Match(p, name) }) {
			selected = append(selected, name)
		}
	}
	return selected
}

// argspec describes a signature as Salt does: the defaults belong to the last args.
func argspec(f *function.Function) map[string]any {
	args, defaults := []any{}, []any{}
	for _, p := range f.Params {
		args = append(args, p.Name)
		if !p.Required {
			defaults = append(defaults, p.Default)
		}
	}
	spec := map[string]any{"args": args, "defaults": nil, "varargs": nil, "kwargs": nil}
	if len(defaults) > 0 {
		spec["defaults"] = defaults
	}
	if f.Varargs {
		spec["varargs"] = true
	}
	if f.Kwargs {
		spec["kwargs"] = true
	}
	return spec
}
