package module

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/extension"
)

// syncParams are those of the functions that synchronise programs. Salt has the
// third too: programs in their order.
var syncParams = []Param{
	{Name: "saltenv", Kind: Words},
	{Name: "refresh", Kind: Bool, Default: true},
}

// syncKind brings the minion's programs of a kind up to date with the master's and
// returns what has changed.
func (c *Call) syncKind(ctx context.Context, kind extension.Kind) ([]string, error) {
	files, err := c.Host.files()
	if err != nil {
		return nil, err
	}
	if c.Host.CacheDir == "" {
		return nil, unavailable("directory for programs")
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
		c.tellHidden(ctx)
	}
	if kind == extension.Grains && c.Bool("refresh") && c.Host.RefreshGrains != nil {
		return changed, c.Host.RefreshGrains(ctx)
	}
	return changed, nil
}

// tellHidden logs which functions of programs nobody can call, as a built-in one has
// the name.
func (c *Call) tellHidden(ctx context.Context) {
	for _, p := range c.Host.Custom.Programs() {
		d, err := p.Describe(ctx)
		if err != nil {
			c.Host.log().Error("a program can not be used", "program", p.Path, "err", err)
			continue
		}
		for name := range d.Functions {
			if _, f := c.table.find(p.Name + "." + name); f != nil {
				c.Host.log().Warn("a function of a program is not used: the built-in one stays", "fun", p.Name+"."+name, "program", p.Path)
			}
		}
	}
}

func runSync(kind extension.Kind) func(context.Context, *Call) (any, error) {
	return func(ctx context.Context, c *Call) (any, error) { return c.syncKind(ctx, kind) }
}

// syncAll synchronises all kinds that a minion has.
func syncAll(ctx context.Context, c *Call) (any, error) {
	all := map[string]any{}
	for _, kind := range []extension.Kind{extension.Grains, extension.Modules, extension.Returners} {
		changed, err := c.syncKind(ctx, kind)
		if err != nil {
			return nil, err
		}
		all[string(kind)] = changed
	}
	return all, nil
}
