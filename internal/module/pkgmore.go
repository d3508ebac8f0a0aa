package module

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// aptPrints runs apt-get without changes; it prints what it would do.
var aptPrints = []string{"apt-get", "-q", "--just-print"}

// needApt returns an error for a feature that only apt has.
func (m *packager) needApt(what string) error {
	if m.name == "apt" {
		return nil
	}
	return function.Unavailable(what + " with " + m.name)
}

// wouldInstall returns what the installation would change.
func (m *packager) wouldInstall(ctx context.Context, words []string) (any, error) {
	if err := m.needApt("test=True"); err != nil {
		return nil, err
	}
	text, err := m.run(ctx, slices.Concat(aptPrints, []string{"install", "--"}, words))
	if err != nil {
		return nil, err
	}
	changes := map[string]any{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) < 3 || f[0] != "Inst" && f[0] != "Remv":
		case f[0] == "Remv":
			changes[f[1]] = map[string]any{"old": strings.Trim(f[2], "[]"), "new": ""}
		case strings.HasPrefix(f[2], "[") && len(f) > 3:
			changes[f[1]] = map[string]any{"old": strings.Trim(f[2], "[]"), "new": strings.TrimPrefix(f[3], "(")}
		default:
			changes[f[1]] = map[string]any{"old": "", "new": strings.TrimPrefix(f[2], "(")}
		}
	}
	return changes, nil
}

func pkgAutoremove(ctx context.Context, c *function.Call) (any, error) {
	m, err := findPackager()
	if err != nil {
		return nil, err
	}
	if c.Bool("list_only") {
		if err := m.needApt("list_only=True"); err != nil {
			return nil, err
		}
		text, err := m.run(ctx, append(slices.Clone(aptPrints), "autoremove"))
		names := []string{}
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Remv" {
				names = append(names, f[1])
			}
		}
		return names, err
	}
	switch m.name {
	case "apt":
		args := aptGet("autoremove")
		if c.Bool("purge") {
			args = append(args, "--purge")
		}
		return m.change(ctx, args)
	case "dnf":
		return m.change(ctx, []string{"dnf", "-y", "autoremove"})
	}
	return nil, m.needApt("autoremove")
}

// holds are the commands that hold and unhold packages.
var holds = map[string][2][]string{
	"apt":    {{"apt-mark", "hold", "--"}, {"apt-mark", "unhold", "--"}},
	"dnf":    {{"dnf", "-q", "versionlock", "add", "--"}, {"dnf", "-q", "versionlock", "delete", "--"}},
	"zypper": {zypperLock("addlock"), zypperLock("removelock")},
}

func zypperLock(verb string) []string { return append(zypper(verb), "--") }

func pkgHold(ctx context.Context, c *function.Call, hold bool) (any, error) {
	words, err := packageWords(c)
	if err != nil {
		return nil, err
	}
	m, err := findPackager()
	if err != nil {
		return nil, err
	}
	programs, known := holds[m.name]
	if !known {
		return nil, m.needApt("hold")
	}
	names, err := m.words(words)
	if err != nil {
		return nil, err
	}
	program, old, now := programs[0], "install", "hold"
	if !hold {
		program, old, now = programs[1], now, old
	}
	all := map[string]any{}
	for _, name := range names {
		one := map[string]any{"name": name, "result": true, "comment": "Package " + name + " is now set to " + now, "changes": map[string]any{"old": old, "new": now}}
		if _, err := m.run(ctx, append(slices.Clone(program), name)); err != nil {
			one["result"], one["comment"], one["changes"] = false, err.Error(), map[string]any{}
			c.SetRetcode(1)
		}
		all[name] = one
	}
	return all, nil
}

// infoFields are the queried fields of a package, in this order.
var infoFields = []string{"name", "version", "arch", "size", "source", "summary"}

// infoPrograms query them; they print one line for each package, separated by tabs.
var infoPrograms = map[string][]string{
	"apt":    {"dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\t${Installed-Size}\t${source:Package}\t${binary:Summary}\n"},
	"dnf":    rpmInfo,
	"zypper": rpmInfo,
}

var rpmInfo = []string{"rpm", "-q", "--qf", `%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\t%{SIZE}\t%{SOURCERPM}\t%{SUMMARY}\n`}

func pkgInfo(ctx context.Context, c *function.Call) (any, error) {
	names := c.VarWords()
	m, err := findPackager()
	if err != nil {
		return nil, err
	}
	args := slices.Clone(infoPrograms[m.name])
	if args == nil {
		return nil, m.needApt("info_installed")
	}
	switch {
	case len(names) > 0:
		args = slices.Concat(args, []string{"--"}, names)
	case args[0] == "rpm":
		args = append(args, "-a")
	}
	text, err := m.run(ctx, args)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != len(infoFields) {
			continue
		}
		one := map[string]any{}
		for i, key := range infoFields[1:] {
			one[key] = f[i+1]
		}
		if n, err := strconv.ParseInt(f[3], 10, 64); err == nil {
			if m.name == "apt" {
				n <<= 10 // dpkg counts in KiB
			}
			one["size"] = n
		}
		all[f[0]] = one
	}
	return all, nil
}

func pkgOwner(ctx context.Context, c *function.Call) (any, error) {
	paths := c.VarWords()
	m, err := findPackager()
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, function.Invalid("name a file")
	}
	owners := map[string]any{}
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			return nil, function.Invalid("%q is not an absolute path", path)
		}
		owners[path] = m.owner(ctx, path)
	}
	if len(paths) == 1 {
		return owners[paths[0]], nil
	}
	return owners, nil
}

// owner returns the package of a file, "" for none.
func (m *packager) owner(ctx context.Context, path string) string {
	args := map[string][]string{
		"apt": {"dpkg-query", "-S", "--", path}, "dnf": {"rpm", "-qf", "--qf", "%{NAME}\n", "--", path}, "zypper": {"rpm", "-qf", "--qf", "%{NAME}\n", "--", path},
		"apk": {"apk", "info", "-q", "-W", "--", path}, "pacman": {"pacman", "-Qqo", "--", path},
	}[m.name]
	text, err := m.run(ctx, args)
	if err != nil {
		return "" // it belongs to no package
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if m.name == "apt" {
		line, _, _ = strings.Cut(line, ": ")
		line, _, _ = strings.Cut(line, ":") // with another architecture
	}
	return line
}

// filePrograms list the files of a package.
var filePrograms = map[string][]string{
	"apt": {"dpkg-query", "-L", "--"}, "dnf": {"rpm", "-ql", "--"}, "zypper": {"rpm", "-ql", "--"},
	"apk": {"apk", "info", "-q", "-L", "--"}, "pacman": {"pacman", "-Qlq", "--"},
}

// pkgFiles returns the files of the named packages, and the manager's errors.
func pkgFiles(ctx context.Context, c *function.Call) (files map[string][]string, errs []string, err error) {
	names := c.VarWords()
	m, err := findPackager()
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return nil, nil, function.Invalid("name a package")
	}
	program := filePrograms[m.name]
	if program == nil {
		return nil, nil, m.needApt("file_list")
	}
	files = map[string][]string{}
	for _, name := range names {
		text, err := m.run(ctx, append(slices.Clone(program), name))
		if ctx.Err() != nil {
			return nil, nil, err
		}
		if err != nil {
			errs = append(errs, err.Error())
			c.SetRetcode(1)
			continue
		}
		files[name] = strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	}
	return files, errs, nil
}
