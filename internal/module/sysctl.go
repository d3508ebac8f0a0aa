package module

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// sysctlFile is the default file of sysctl.persist.
const sysctlFile = "/etc/sysctl.d/99-salt.conf"

var (
	sysctlName   = function.Param{Name: "name", Kind: function.String, Required: true}
	sysctlConfig = function.Param{Name: "config", Kind: function.Path}
)

// sysctlModule manages kernel parameters.
var sysctlModule = &function.Module{
	Name: "sysctl",
	Doc:  "Functions that read and set parameters of the kernel, in /proc/sys and in files that are read at the start of the machine.",
	Functions: []function.Function{
		{
			Name: "assign", Doc: "Set a parameter until the next start of the machine, and return it.", Example: `salt '*' sysctl.assign net.ipv4.ip_forward 1`,
			Params: []function.Param{sysctlName, {Name: "value", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if err := setParameter(c); err != nil {
					return nil, err
				}
				return map[string]any{c.String("name"): c.String("value")}, nil
			},
		},
		{
			Name: "default_config", Doc: "Return the file that sysctl.persist writes to.", Example: `salt '*' sysctl.default_config`,
			Run: func(context.Context, *function.Call) (any, error) { return sysctlFile, nil },
		},
		{
			Name: "get", Doc: "Return a parameter; an empty text if the kernel has none of that name.", Example: `salt '*' sysctl.get net.ipv4.ip_forward`,
			Params: []function.Param{sysctlName},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				path, err := parameterFile(c)
				if err != nil {
					return nil, err
				}
				text, err := os.ReadFile(path)
				if errors.Is(err, fs.ErrNotExist) {
					return "", nil
				}
				return strings.TrimRight(string(text), "\n"), err
			},
		},
		{
			Name: "persist", Doc: "Set a parameter, now and at each start of the machine. Returns Already set if nothing was to be done, otherwise Updated.", Example: `salt '*' sysctl.persist net.ipv4.ip_forward 1`,
			Params: []function.Param{sysctlName, {Name: "value", Kind: function.String, Required: true}, sysctlConfig, {Name: "ignore", Kind: function.Bool, Default: false}}, Run: sysctlPersist,
		},
		{
			Name: "show", Doc: "Return the parameters of the kernel, or with config_file those of a file.", Example: "salt '*' sysctl.show\nsalt '*' sysctl.show config_file=/etc/sysctl.conf",
			Params: []function.Param{{Name: "config_file", Kind: function.Path}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				if !c.Has("config_file") {
					return kernelParameters(ctx, c)
				}
				text, err := readText(c.String("config_file"))
				all := map[string]any{}
				for line := range strings.Lines(text) {
					if name, v, ok := parameterLine(line); ok {
						all[name] = v
					}
				}
				return all, err
			},
		},
	},
}

// parameterFile returns the kernel's file for the parameter of the argument name. In a name with
// slashes, a dot does not separate.
func parameterFile(c *function.Call) (string, error) {
	name := c.String("name")
	if !strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, ".", "/")
	}
	if !filepath.IsLocal(name) || strings.ContainsAny(name, "\x00\n=") {
		return "", function.Invalid("%q is not the name of a parameter of the kernel", c.String("name"))
	}
	return filepath.Join(c.Host.Path("/proc/sys"), name), nil
}

func setParameter(c *function.Call) error {
	path, err := parameterFile(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // never created: either the kernel has it or not
	if err != nil {
		return err
	}
	_, err = f.WriteString(c.String("value") + "\n")
	return errors.Join(err, f.Close())
}

// parameterLine parses "name = value"; ok is false for a comment.
func parameterLine(line string) (name, v string, ok bool) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "-")
	if line == "" || strings.ContainsAny(line[:1], "#;") {
		return "", "", false
	}
	name, v, ok = strings.Cut(line, "=")
	return strings.TrimSpace(name), strings.Join(strings.Fields(v), " "), ok
}

func sysctlPersist(_ context.Context, c *function.Call) (any, error) {
	if err := setParameter(c); err != nil && !(c.Bool("ignore") && errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	file := c.String("config")
	if file == "" {
		file = c.Host.Path(sysctlFile)
	}
	text, err := readText(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	want := strings.Join(strings.Fields(c.String("value")), " ")
	var b strings.Builder
	found := false
	for line := range strings.Lines(text) {
		name, v, ok := parameterLine(line)
		switch {
		case !ok || name != c.String("name"):
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
			continue
		case v == want && !found:
			return "Already set", nil
		case !found:
			b.WriteString(name + " = " + want + "\n")
		}
		found = true
	}
	if !found {
		b.WriteString(c.String("name") + " = " + want + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return "Updated", replaceText(file, b.String(), 0o644)
}

// kernelParameters reads all readable parameters.
func kernelParameters(ctx context.Context, c *function.Call) (any, error) {
	root, all := c.Host.Path("/proc/sys"), map[string]any{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || d.IsDir() {
			return nil // unreadable ones are omitted
		}
		if info, err := d.Info(); err != nil || info.Mode()&0o444 == 0 {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			name := strings.ReplaceAll(strings.TrimPrefix(path, root+"/"), "/", ".")
			all[name] = strings.TrimRight(string(text), "\n")
		}
		return nil
	})
	return all, err
}
