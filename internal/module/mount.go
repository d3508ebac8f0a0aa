package module

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

var (
	mountPoint  = function.Param{Name: "name", Kind: function.Path, Required: true}
	mountDevice = function.Param{Name: "device", Kind: function.String}
	fstabFile   = function.Param{Name: "config", Kind: function.Path}
	mountParams = []function.Param{mountPoint, {Name: "device", Kind: function.String, Required: true}, {Name: "mkmnt", Kind: function.Bool, Default: false},
		{Name: "fstype", Kind: function.String, Default: ""}, {Name: "opts", Kind: function.Words}}
)

// mountModule manages mounted file systems.
var mountModule = &function.Module{
	Name: "mount",
	Doc:  "Functions that mount file systems by the programs mount, umount, swapon and swapoff, and edit /etc/fstab.",
	Functions: []function.Function{
		{
			Name: "active", Doc: "Return the mounted file systems by path.", Example: `salt '*' mount.active`,
			Run: func(context.Context, *function.Call) (any, error) {
				mounts, err := mountTable()
				all := map[string]any{}
				for _, m := range mounts {
					all[m.path] = map[string]any{"device": m.device, "fstype": m.kind, "opts": strings.Split(m.options, ",")}
				}
				return all, err
			},
		},
		{
			Name: "fstab", Doc: "Return the entries of /etc/fstab by path.", Example: `salt '*' mount.fstab`, Params: []function.Param{fstabFile},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				lines, err := readFstab(c)
				all := map[string]any{}
				for _, f := range lines {
					if len(f.fields) == 6 {
						all[f.path()] = map[string]any{"device": unescapeMount(f.fields[0]), "fstype": f.fields[2], "opts": strings.Split(f.fields[3], ","), "dump": f.fields[4], "pass": f.fields[5]}
					}
				}
				return all, err
			},
		},
		{
			Name: "is_mounted", Doc: "Return whether a file system is mounted at a path.", Example: `salt '*' mount.is_mounted /mnt/share`, Params: []function.Param{mountPoint},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				mounts, err := mountTable()
				return slices.ContainsFunc(mounts, func(m mount) bool { return m.path == c.String("name") }), err
			},
		},
		{
			Name: "mount", Doc: "Mount a device at a path; with mkmnt, make the path first.", Example: `salt '*' mount.mount /mnt/foo /dev/sdz1 True fstype=ext4 opts=ro,noatime`, Params: mountParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) { return mountWith(ctx, c, c.Words("opts")) },
		},
		{
			Name: "remount", Doc: "Mount a file system again with other options; one that is not mounted is mounted.", Example: `salt '*' mount.remount /mnt/foo /dev/sdz1 opts=ro`, Params: mountParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				mounts, err := mountTable()
				if err != nil {
					return nil, err
				}
				options := c.Words("opts")
				if slices.ContainsFunc(mounts, func(m mount) bool { return m.path == c.String("name") }) {
					options = append([]string{"remount"}, options...)
				}
				return mountWith(ctx, c, options)
			},
		},
		{
			Name: "rm_fstab", Doc: "Remove the entry of a path, and of a device if one is given, from /etc/fstab. Returns whether there is none now.", Example: `salt '*' mount.rm_fstab /mnt/foo /dev/sdz1`,
			Params: []function.Param{mountPoint, mountDevice, fstabFile}, Run: rmFstab,
		},
		{
			Name: "set_fstab", Doc: "Set the entry of a path in /etc/fstab. Returns new, change or present.", Example: `salt '*' mount.set_fstab /mnt/foo /dev/sdz1 ext4 opts=defaults,noatime`,
			Params: []function.Param{mountPoint, {Name: "device", Kind: function.String, Required: true}, {Name: "fstype", Kind: function.String, Required: true}, {Name: "opts", Kind: function.Words, Default: []string{"defaults"}},
				{Name: "dump", Kind: function.Int, Default: 0}, {Name: "pass_num", Kind: function.Int, Default: 0}, fstabFile, {Name: "test", Kind: function.Bool, Default: false}},
			Run: setFstab,
		},
		{
			Name: "swapoff", Doc: "Stop using a device or file for swapping.", Example: `salt '*' mount.swapoff /root/swapfile`, Params: []function.Param{mountPoint},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				_, err := output(ctx, "swapoff", "--", c.String("name"))
				return done(err)
			},
		},
		{
			Name: "swapon", Doc: "Use a device or file for swapping.", Example: `salt '*' mount.swapon /root/swapfile`, Params: []function.Param{mountPoint, {Name: "priority", Kind: function.Int}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"swapon"}
				if c.Has("priority") {
					args = append(args, "-p", strconv.Itoa(c.Int("priority")))
				}
				_, err := output(ctx, append(args, "--", c.String("name"))...)
				return map[string]any{"stats": swaps(), "new": err == nil}, err
			},
		},
		{
			Name: "swaps", Doc: "Return the devices and files that are used for swapping.", Example: `salt '*' mount.swaps`,
			Run: func(context.Context, *function.Call) (any, error) { return swaps(), nil },
		},
		{
			Name: "umount", Doc: "Unmount what is mounted at a path, or from a device.", Example: `salt '*' mount.umount /mnt/foo`, Params: []function.Param{mountPoint, mountDevice, {Name: "lazy", Kind: function.Bool, Default: false}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"umount"}
				if c.Bool("lazy") {
					args = append(args, "-l")
				}
				_, err := output(ctx, append(args, "--", c.String("name"))...)
				return done(err)
			},
		},
	},
}

func mountWith(ctx context.Context, c *function.Call, options []string) (any, error) {
	if c.Bool("mkmnt") {
		if err := os.MkdirAll(c.String("name"), 0o755); err != nil {
			return nil, err
		}
	}
	args := []string{"mount"}
	if c.String("fstype") != "" {
		args = append(args, "-t", c.String("fstype"))
	}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	_, err := output(ctx, append(args, "--", c.String("device"), c.String("name"))...)
	return done(err)
}

func swaps() map[string]any {
	all := map[string]any{}
	_ = eachRow("/proc/swaps", 5, func(f []string) { // a kernel without swap does not have this file
		if f[0] != "Filename" {
			all[unescapeMount(f[0])] = map[string]any{"type": f[1], "size": f[2], "used": f[3], "priority": f[4]}
		}
	})
	return all
}

// fstabLine is a line of /etc/fstab: its six fields, or no fields for anything else.
type fstabLine struct {
	text   string
	fields []string
}

func (f fstabLine) path() string { return unescapeMount(f.fields[1]) }

func fstab(c *function.Call) string {
	if c.Has("config") {
		return c.String("config")
	}
	return c.Host.Path("/etc/fstab")
}

func readFstab(c *function.Call) ([]fstabLine, error) {
	text, err := readText(fstab(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var lines []fstabLine
	for line := range strings.Lines(text) {
		l := fstabLine{text: strings.TrimSuffix(line, "\n")}
		if fields := strings.Fields(line); len(fields) >= 4 && !strings.HasPrefix(fields[0], "#") {
			l.fields = append(fields, "0", "0")[:6]
		}
		lines = append(lines, l)
	}
	return lines, err
}

func writeFstab(c *function.Call, lines []fstabLine) error {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return replaceText(fstab(c), b.String(), 0o644)
}

func rmFstab(_ context.Context, c *function.Call) (any, error) {
	lines, err := readFstab(c)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(slices.Clone(lines), func(l fstabLine) bool {
		return l.fields != nil && l.path() == c.String("name") && (!c.Has("device") || unescapeMount(l.fields[0]) == c.String("device"))
	})
	if len(kept) == len(lines) {
		return true, nil
	}
	return true, writeFstab(c, kept)
}

// escapeMount escapes blanks for /etc/fstab.
func escapeMount(s string) string {
	return strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(s)
}

func setFstab(_ context.Context, c *function.Call) (any, error) {
	lines, err := readFstab(c)
	if err != nil {
		return nil, err
	}
	fields := []string{escapeMount(c.String("device")), escapeMount(c.String("name")), escapeMount(c.String("fstype")),
		escapeMount(strings.Join(c.Words("opts"), ",")), strconv.Itoa(c.Int("dump")), strconv.Itoa(c.Int("pass_num"))}
	entry := fstabLine{strings.Join(fields, "\t"), fields}
	verdict := "new"
	for i, l := range lines {
		if l.fields == nil || l.path() != c.String("name") {
			continue
		}
		if slices.Equal(l.fields, fields) {
			return "present", nil
		}
		verdict, lines[i] = "change", entry
		break
	}
	if verdict == "new" {
		lines = append(lines, entry)
	}
	if c.Bool("test") {
		return verdict, nil
	}
	return verdict, writeFstab(c, lines)
}
