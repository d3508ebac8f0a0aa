package module

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
)

// kmodModule manages kernel modules.
var kmodModule = &function.Module{
	Name: "kmod",
	Doc:  "Functions that show, load and unload modules of the kernel. Nothing is written for the next start of the machine.",
	Functions: []function.Function{
		{
			Name: "available", Doc: "Return the modules that the running kernel could load.", Example: `salt '*' kmod.available`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return kernelModules(c) },
		},
		{
			Name: "is_loaded", Doc: "Return whether a module is loaded.", Example: `salt '*' kmod.is_loaded kvm`,
			Params: []function.Param{kernelModule},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				names, err := loadedModules(c)
				return slices.Contains(names, plainModule(c.String("mod"))), err
			},
		},
		{
			Name: "load", Doc: "Load a module, and what it needs. Returns the modules that were not loaded before.", Example: `salt '*' kmod.load kvm`,
			Params: []function.Param{kernelModule},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return changeModules(ctx, c, "modprobe", "--", c.String("mod"))
			},
		},
		{
			Name: "lsmod", Doc: "Return the loaded modules: name, size in bytes, and by which modules each is used.", Example: `salt '*' kmod.lsmod`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return lsmod(c) },
		},
		{
			Name: "mod_list", Doc: "Return the names of the loaded modules.", Example: `salt '*' kmod.mod_list`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return loadedModules(c) },
		},
		{
			Name: "remove", Doc: "Unload a module, and those that it alone needed. Returns the modules that are not loaded any more.", Example: `salt '*' kmod.remove kvm`,
			Params: []function.Param{kernelModule},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return changeModules(ctx, c, "modprobe", "-r", "--", c.String("mod"))
			},
		},
	},
}

var kernelModule = function.Param{Name: "mod", Kind: function.String, Required: true}

// plainModule returns a name as the kernel writes it.
func plainModule(name string) string { return strings.ReplaceAll(name, "-", "_") }

func lsmod(c *function.Call) ([]any, error) {
	text, err := os.ReadFile(c.Host.Path("/proc/modules"))
	list := []any{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // name size uses users,... state address
		if len(f) < 4 {
			continue
		}
		size, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		users := []any{}
		for _, u := range strings.Split(strings.Trim(f[3], "-,"), ",") {
			if u != "" {
				users = append(users, u)
			}
		}
		list = append(list, map[string]any{"module": f[0], "size": size, "depcount": int64(len(users)), "deps": users})
	}
	return list, err
}

func loadedModules(c *function.Call) ([]string, error) {
	list, err := lsmod(c)
	names := []string{}
	for _, m := range list {
		names = append(names, m.(map[string]any)["module"].(string))
	}
	slices.Sort(names)
	return names, err
}

// kernelModules returns the modules with files in the directory of the running kernel.
func kernelModules(c *function.Call) ([]string, error) {
	names := []string{}
	root := c.Host.Path(filepath.Join("/lib/modules", posix.Uname().Release))
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if base, _, ok := strings.Cut(filepath.Base(path), ".ko"); err == nil && ok && !d.IsDir() {
			names = append(names, plainModule(base))
		}
		return nil // a missing directory contains no modules
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// changeModules runs a program that loads or unloads modules, and returns the changes.
func changeModules(ctx context.Context, c *function.Call, args ...string) (any, error) {
	before, err := loadedModules(c)
	if err != nil {
		return nil, err
	}
	if _, err := output(ctx, args...); err != nil {
		return nil, err
	}
	after, err := loadedModules(c)
	changed := []string{}
	for _, pair := range [2][2][]string{{before, after}, {after, before}} {
		for _, name := range pair[0] {
			if !slices.Contains(pair[1], name) {
				changed = append(changed, name)
			}
		}
	}
	return changed, err
}
