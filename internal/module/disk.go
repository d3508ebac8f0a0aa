package module

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
)

// diskModule shows disks and file systems.
var diskModule = &function.Module{
	Name: "disk",
	Doc:  "Functions that report on disks and file systems.",
	Functions: []function.Function{
		{
			Name:    "blkid",
			Doc:     "Return what blkid knows of block devices: all, or one.",
			Example: `salt '*' disk.blkid /dev/sda`,
			Params:  []function.Param{{Name: "device", Kind: function.String}},
			Run:     diskBlkid,
		},
		{
			Name:    "fstype",
			Doc:     "Return the type of the file system mounted from a device or at a path.",
			Example: `salt '*' disk.fstype /dev/sda1`,
			Params:  []function.Param{{Name: "device", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				mounts, err := mountTable()
				for _, m := range slices.Backward(mounts) {
					if m.device == c.String("device") || m.path == c.String("device") {
						return m.kind, nil
					}
				}
				return "", err
			},
		},
		{
			Name:    "inodeusage",
			Doc:     "Return how many inodes the mounted file systems have in use.",
			Example: `salt '*' disk.inodeusage`,
			Run: func(context.Context, *function.Call) (any, error) {
				return eachFileSystem(func(m mount, s posix.FileSystem) any {
					used := s.Files - s.FreeFiles
					return map[string]any{
						"filesystem": m.device, "inodes": strconv.FormatUint(s.Files, 10), "used": strconv.FormatUint(used, 10),
						"free": strconv.FormatUint(s.FreeFiles, 10), "use": percentage(used, s.Files),
					}
				})
			},
		},
		{
			Name:    "percent",
			Doc:     "Return how full the mounted file systems are: all by path, or the one at a path.",
			Example: "salt '*' disk.percent\nsalt '*' disk.percent /var",
			Params:  []function.Param{{Name: "args", Kind: function.String}},
			Run:     diskPercent,
		},
		{
			Name:    "usage",
			Doc:     "Return how full the mounted file systems are, in units of 1024 bytes.",
			Example: `salt '*' disk.usage`,
			Run: func(context.Context, *function.Call) (any, error) {
				return eachFileSystem(func(m mount, s posix.FileSystem) any {
					kib := func(blocks uint64) string { return strconv.FormatUint(blocks*s.BlockSize/1024, 10) }
					return map[string]any{
						"filesystem": m.device, "1K-blocks": kib(s.Blocks), "used": kib(s.Blocks - s.Free),
						"available": kib(s.Available), "capacity": capacity(s),
					}
				})
			},
		},
	},
}

// eachFileSystem describes every mounted file system that has a size, by path. Those without a
// size, such as /proc, and those that the minion may not see are skipped.
func eachFileSystem(describe func(mount, posix.FileSystem) any) (map[string]any, error) {
	mounts, err := mountTable()
	found := map[string]any{}
	for _, m := range mounts {
		if s, err := posix.StatFS(m.path); err == nil && s.Blocks > 0 {
			found[m.path] = describe(m, s)
		}
	}
	return found, err
}

// capacity returns the used share of the space for ordinary users, rounded up.
func capacity(s posix.FileSystem) string {
	used := s.Blocks - s.Free
	return percentage(used, used+s.Available)
}

func percentage(part, whole uint64) string {
	if whole == 0 {
		return "0%"
	}
	return fmt.Sprintf("%d%%", (part*100+whole-1)/whole)
}

func diskPercent(_ context.Context, c *function.Call) (any, error) {
	all, err := eachFileSystem(func(_ mount, s posix.FileSystem) any { return capacity(s) })
	if err != nil || !c.Has("args") {
		return all, err
	}
	one, ok := all[c.String("args")]
	if !ok {
		return nil, function.Invalid("no file system is mounted at %q", c.String("args"))
	}
	return one, nil
}

func diskBlkid(ctx context.Context, c *function.Call) (any, error) {
	args := []string{"blkid", "-o", "export"}
	if c.Has("device") {
		args = append(args, "--", c.String("device"))
	}
	e, err := tool(ctx, args...)
	if err != nil {
		return nil, err
	}
	if e.Code != 0 && e.Code != 2 { // 2 means that there is nothing to report
		return nil, e.Failure("blkid")
	}
	devices := map[string]any{}
	for block := range strings.SplitSeq(e.Stdout, "\n\n") {
		device, entry := "", map[string]any{}
		for line := range strings.Lines(block) {
			name, v, ok := strings.Cut(strings.TrimSpace(line), "=")
			switch {
			case ok && name == "DEVNAME":
				device = v
			case ok:
				entry[name] = v
			}
		}
		if device != "" {
			devices[device] = entry
		}
	}
	return devices, nil
}
