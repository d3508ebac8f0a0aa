package module

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
)

// syncParams are those of the functions that synchronise custom programs.
var syncParams = []function.Param{
	{Name: "saltenv", Kind: function.Words},
	{Name: "refresh", Kind: function.Bool, Default: true},
}

// syncKind updates the minion's programs of one kind from the master and returns the changes.
func syncKind(ctx context.Context, c *function.Call, kind extension.Kind) ([]string, error) {
	files, err := fileServer(c.Host)
	if err != nil {
		return nil, err
	}
	if c.Host.CacheDir == "" {
		return nil, function.Unavailable("directory for programs")
	}
	envs := c.Words("saltenv")
	if len(envs) == 0 {
		envs = []string{"base"}
	}
	changed, err := extension.Sync(ctx, files, kind, envs, extension.CacheDir(c.Host.CacheDir, kind))
	if err != nil {
		return changed, fmt.Errorf("synchronise %s: %w", kind, err)
	}
	if kind == extension.Modules {
		tellHidden(ctx, c)
	}
	if facts := services(c.Host).Facts; kind == extension.Grains && c.Bool("refresh") && facts != nil {
		return changed, facts.RefreshGrains(ctx)
	}
	return changed, nil
}

// tellHidden logs which functions of custom programs cannot be called because a built-in function
// has the same name.
func tellHidden(ctx context.Context, c *function.Call) {
	for _, p := range c.Host.Custom.Programs() {
		d, err := p.Describe(ctx)
		if err != nil {
			c.Host.Logger().Error("a program cannot be used", "program", p.Path, "err", err)
			continue
		}
		for name := range d.Functions {
			if _, f := c.Table().Find(p.Name + "." + name); f != nil {
				c.Host.Logger().Warn("a function of a program is not used: the built-in one takes precedence", "fun", p.Name+"."+name, "program", p.Path)
			}
		}
	}
}

func runSync(kind extension.Kind) func(context.Context, *function.Call) (any, error) {
	return func(ctx context.Context, c *function.Call) (any, error) { return syncKind(ctx, c, kind) }
}

// syncAll synchronises all kinds that a minion has.
func syncAll(ctx context.Context, c *function.Call) (any, error) {
	all := map[string]any{}
	for _, kind := range []extension.Kind{extension.Grains, extension.Modules, extension.Returners} {
		changed, err := syncKind(ctx, c, kind)
		if err != nil {
			return nil, err
		}
		all[string(kind)] = changed
	}
	return all, nil
}
