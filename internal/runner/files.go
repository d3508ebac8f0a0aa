package runner

import (
	"context"
	"path"
	"slices"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
)

// fileserverModule shows the files of the file server.
func fileserverModule(h *Host) *function.Module {
	env := []function.Param{{Name: "saltenv", Kind: function.String, Default: "base"}}
	list := func(of func(string) []string) func(context.Context, *function.Call) (any, error) {
		return func(ctx context.Context, c *function.Call) (any, error) {
			files, err := h.Files.List(ctx, c.String("saltenv"))
			all := []string{}
			for _, f := range files {
				all = append(all, of(f.Path)...)
			}
			slices.Sort(all)
			return slices.Compact(all), err
		}
	}
	return &function.Module{Name: "fileserver", Doc: "The files that minions get: those below the directories of file_roots.", Functions: []function.Function{
		{Name: "dir_list", Class: function.Shared, Doc: "Return the directories of an environment in which there are files.", Example: "salt-run fileserver.dir_list", Params: env, Run: list(parents)},
		{Name: "envs", Class: function.Shared, Doc: "Return the environments.", Example: "salt-run fileserver.envs",
			Run: func(ctx context.Context, _ *function.Call) (any, error) { return h.Files.Environments(ctx) }},
		{Name: "file_list", Class: function.Shared, Doc: "Return the files of an environment.", Example: "salt-run fileserver.file_list\nsalt-run fileserver.file_list saltenv=dev", Params: env,
			Run: list(func(name string) []string { return []string{name} })},
		{Name: "update", Class: function.Shared, Doc: "Return True. Files are served directly from the directories, so there is nothing to update.", Example: "salt-run fileserver.update",
			Params: []function.Param{{Name: "backend", Kind: function.Any}},
			Run:    func(context.Context, *function.Call) (any, error) { return true, nil }},
	}}
}

// parents returns the directories above a file.
func parents(name string) (dirs []string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}

// FileServer has the files that the master serves to minions.
type FileServer interface {
	Environments(ctx context.Context) ([]string, error)
	List(ctx context.Context, env string) ([]fileserver.File, error)
}

// saltutilModule lists the programs that were added to the master.
func saltutilModule(h *Host) *function.Module {
	names := func() []string {
		list := []string{}
		for _, p := range h.Custom.Programs() {
			list = append(list, "runners."+p.Name)
		}
		return list
	}
	env := []function.Param{{Name: "saltenv", Kind: function.Words}}
	return &function.Module{Name: "saltutil", Doc: "Programs that were added to the master. They are used directly from their directories, so there is nothing to synchronize.", Functions: []function.Function{
		{Name: "sync_all", Class: function.Shared, Doc: "Return the programs that the master has found, by kind.", Example: "salt-run saltutil.sync_all", Params: env,
			Run: func(context.Context, *function.Call) (any, error) { return map[string]any{"runners": names()}, nil }},
		{Name: "sync_runners", Class: function.Shared, Doc: "Return the runners that the master has found, in _runners of file_roots and in its runner_dirs.", Example: "salt-run saltutil.sync_runners", Params: env,
			Run: func(context.Context, *function.Call) (any, error) { return names(), nil }},
	}}
}
