package module

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/value"
)

var packageParams = []function.Param{{Name: "name", Kind: function.Words}, {Name: "pkgs", Kind: function.List}}

// pkgModule manages packages.
var pkgModule = &function.Module{
	Name: "pkg",
	Doc:  "Functions that manage the packages of the system by its own package manager: apt, dnf, zypper, apk or pacman, whichever is there.",
	Functions: []function.Function{
		{
			Name:    "autoremove",
			Doc:     "Remove packages that were installed for others and are needed no more, and return what changed; with list_only their names. With purge their configuration files go too.",
			Example: `salt '*' pkg.autoremove list_only=True`,
			Params:  []function.Param{{Name: "list_only", Kind: function.Bool, Default: false}, {Name: "purge", Kind: function.Bool, Default: false}},
			Run:     pkgAutoremove,
		},
		{
			Name:    "available_version",
			Doc:     "The older name of pkg.latest_version.",
			Example: `salt '*' pkg.available_version bash`,
			Params:  []function.Param{{Name: "refresh", Kind: function.Bool, Default: false}},
			Varargs: true,
			Run:     pkgLatest,
		},
		{
			Name:    "del_repo",
			Doc:     "Remove a repository, of apt with the components that are named or, without any, as a whole. A file that contains nothing else is removed, too. apt then fetches its lists, unless refresh is False.",
			Example: "salt '*' pkg.del_repo 'deb http://deb.debian.org/debian stable contrib'\nsalt '*' pkg.del_repo epel",
			Params:  []function.Param{repoName, repoRefresh},
			Run:     pkgDelRepo,
		},
		{
			Name:    "file_dict",
			Doc:     "Return the files of packages by package, and beside them what could not be found.",
			Example: `salt '*' pkg.file_dict bash`,
			Varargs: true,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				files, errs, err := pkgFiles(ctx, c)
				packages := map[string]any{}
				for name, list := range files {
					packages[name] = value.Texts(list)
				}
				return map[string]any{"errors": value.Texts(errs), "packages": packages}, err
			},
		},
		{
			Name:    "file_list",
			Doc:     "Return the files of packages, and beside them what could not be found.",
			Example: `salt '*' pkg.file_list bash`,
			Varargs: true,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				files, errs, err := pkgFiles(ctx, c)
				all := []string{}
				for _, name := range slices.Sorted(maps.Keys(files)) {
					all = append(all, files[name]...)
				}
				return map[string]any{"errors": value.Texts(errs), "files": value.Texts(all)}, err
			},
		},
		{
			Name:    "get_repo",
			Doc:     "Return a repository as list_repos shows it, an empty dictionary if there is none: one of apt by its line, or all of an address as a list, one of dnf or zypper by its name.",
			Example: "salt '*' pkg.get_repo 'deb http://deb.debian.org/debian stable main'\nsalt '*' pkg.get_repo epel",
			Params:  []function.Param{repoName},
			Run:     pkgGetRepo,
		},
		{
			Name:    "hold",
			Doc:     "Keep packages at their version, and return the result for each by its name.",
			Example: `salt '*' pkg.hold bash`,
			Params:  packageParams,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return pkgHold(ctx, c, true) },
		},
		{
			Name:    "info_installed",
			Doc:     "Return what is known of installed packages, of all without a name: version, architecture, size, source and description.",
			Example: `salt '*' pkg.info_installed bash`,
			Varargs: true,
			Run:     pkgInfo,
		},
		{
			Name:    "install",
			Doc:     "Install packages, of a version if one is given, and return what changed: by name, the old and the new version. With test nothing is done, and what would change is returned.",
			Example: "salt '*' pkg.install bash\nsalt '*' pkg.install pkgs='[foo, {bar: 1.2.3-0}]' refresh=True",
			Params:  slices.Concat(packageParams, []function.Param{{Name: "version", Kind: function.String}, {Name: "refresh", Kind: function.Bool, Default: false}, {Name: "test", Kind: function.Bool, Default: false}}),
			Run:     pkgInstall,
		},
		{
			Name:    "latest_version",
			Doc:     "Return the version that could be installed or upgraded to, an empty text where there is none; of several packages a dictionary.",
			Example: `salt '*' pkg.latest_version bash`,
			Params:  []function.Param{{Name: "refresh", Kind: function.Bool, Default: false}},
			Varargs: true,
			Run:     pkgLatest,
		},
		{
			Name:    "list_pkgs",
			Doc:     "Return the installed packages and their versions; several versions of one are separated by commas, or lists with versions_as_list.",
			Example: `salt '*' pkg.list_pkgs`,
			Params:  []function.Param{{Name: "versions_as_list", Kind: function.Bool, Default: false}},
			Run:     pkgList,
		},
		{
			Name:    "list_repos",
			Doc:     "Return the repositories: those of apt by their addresses, with file, kind, distribution, components, and whether each is disabled; those of dnf and zypper by their names, with their settings.",
			Example: `salt '*' pkg.list_repos`,
			Run:     pkgRepos,
		},
		{
			Name:    "list_upgrades",
			Doc:     "Return the packages that could be upgraded and the versions that they would get.",
			Example: `salt '*' pkg.list_upgrades refresh=True`,
			Params:  []function.Param{{Name: "refresh", Kind: function.Bool, Default: false}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				m, err := packagerOf(ctx, c)
				if err != nil {
					return nil, err
				}
				return m.upgradable(ctx)
			},
		},
		{
			Name: "mod_repo",
			Doc: "Change a repository, or make it, and return what it is then. For apt it is named by its line: components are added to those that it has, comps takes their place; " +
				"a new one is written to /etc/apt/sources.list or to file. For dnf and zypper it is named by its id, and a setting that is an empty text is removed. apt then fetches its lists, unless refresh is False.",
			Example: "salt '*' pkg.mod_repo 'deb http://deb.debian.org/debian stable main' file=/etc/apt/sources.list.d/debian.list signedby=/usr/share/keyrings/debian.gpg\nsalt '*' pkg.mod_repo epel baseurl=https://example.com/epel gpgcheck=True enabled=False",
			Params:  slices.Concat([]function.Param{repoName}, aptParams, rpmParams, []function.Param{{Name: "disabled", Kind: function.Bool}, {Name: "enabled", Kind: function.Bool}, {Name: "file", Kind: function.Path}, repoRefresh}),
			Run:     pkgModRepo,
		},
		{
			Name:    "owner",
			Doc:     "Return the package that a file belongs to, an empty text for none; of several files a dictionary.",
			Example: `salt '*' pkg.owner /bin/sh`,
			Varargs: true,
			Run:     pkgOwner,
		},
		{
			Name:    "purge",
			Doc:     "Remove packages and their configuration files, and return what changed.",
			Example: `salt '*' pkg.purge foo`,
			Params:  packageParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return removePackages(ctx, c, func(m *packager) []string { return m.purge })
			},
		},
		{
			Name:    "refresh_db",
			Doc:     "Fetch the lists of what can be installed.",
			Example: `salt '*' pkg.refresh_db`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				m, err := findPackager()
				if err != nil {
					return nil, err
				}
				_, err = m.run(ctx, m.refresh)
				return done(err)
			},
		},
		{
			Name:    "remove",
			Doc:     "Remove packages and return what changed.",
			Example: `salt '*' pkg.remove foo,bar`,
			Params:  packageParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return removePackages(ctx, c, func(m *packager) []string { return m.remove })
			},
		},
		{
			Name:    "unhold",
			Doc:     "Allow packages to be upgraded again, and return the result for each by its name.",
			Example: `salt '*' pkg.unhold bash`,
			Params:  packageParams,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return pkgHold(ctx, c, false) },
		},
		{
			Name:    "upgrade",
			Doc:     "Upgrade all packages and return what changed. With dist_upgrade=False no package is newly installed or removed for that, if the package manager distinguishes the two.",
			Example: "salt '*' pkg.upgrade refresh=True\nsalt '*' pkg.upgrade dist_upgrade=False",
			Params:  []function.Param{{Name: "refresh", Kind: function.Bool, Default: false}, {Name: "dist_upgrade", Kind: function.Bool, Default: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				m, err := packagerOf(ctx, c)
				if err != nil {
					return nil, err
				}
				if m.name == "apt" && !c.Bool("dist_upgrade") {
					return m.change(ctx, aptGet("upgrade"))
				}
				return m.change(ctx, m.upgrade)
			},
		},
		{
			Name:    "upgrade_available",
			Doc:     "Return whether a package could be upgraded.",
			Example: `salt '*' pkg.upgrade_available bash`,
			Params:  []function.Param{{Name: "name", Kind: function.String, Required: true}, {Name: "refresh", Kind: function.Bool, Default: false}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				m, err := packagerOf(ctx, c)
				if err != nil {
					return nil, err
				}
				upgrades, err := m.upgradable(ctx)
				_, ok := upgrades[c.String("name")]
				return ok, err
			},
		},
		{
			Name:    "version",
			Doc:     "Return the version of an installed package, an empty text if it is not; of several packages or a glob a dictionary.",
			Example: "salt '*' pkg.version bash\nsalt '*' pkg.version bash 'linux-image-*'",
			Varargs: true,
			Run:     pkgVersion,
		},
	},
}

// packagerOf returns the system's package manager; with the argument refresh it updates the package
// lists first.
func packagerOf(ctx context.Context, c *function.Call) (*packager, error) {
	m, err := findPackager()
	if err == nil && c.Bool("refresh") {
		_, err = m.run(ctx, m.refresh)
	}
	return m, err
}

func pkgList(ctx context.Context, c *function.Call) (any, error) {
	m, err := findPackager()
	if err != nil {
		return nil, err
	}
	installed, err := m.installed(ctx)
	all := map[string]any{}
	for name, versions := range installed {
		all[name] = strings.Join(versions, ",")
		if c.Bool("versions_as_list") {
			all[name] = versions
		}
	}
	return all, err
}

func pkgVersion(ctx context.Context, c *function.Call) (any, error) {
	names, err := packageNames(c)
	if err != nil {
		return nil, err
	}
	m, err := findPackager()
	if err != nil {
		return nil, err
	}
	installed, err := m.installed(ctx)
	if err != nil {
		return nil, err
	}
	versions := map[string]any{}
	for _, wanted := range names {
		if !strings.ContainsAny(wanted, "*?[") {
			versions[wanted] = strings.Join(installed[wanted], ",")
			continue
		}
		for name, list := range installed {
			if fnmatch.Match(wanted, name) {
				versions[name] = strings.Join(list, ",")
			}
		}
	}
	return oneOrAll(names, versions), nil
}

// oneOrAll returns only the version if a single package was requested by name.
func oneOrAll(names []string, versions map[string]any) any {
	if len(names) == 1 && len(versions) == 1 && !strings.ContainsAny(names[0], "*?[") {
		return versions[names[0]]
	}
	return versions
}

// packageNames returns the positional arguments, at least one.
func packageNames(c *function.Call) ([]string, error) {
	names := c.VarWords()
	if len(names) == 0 {
		return nil, function.Invalid("name a package")
	}
	return names, nil
}

func pkgLatest(ctx context.Context, c *function.Call) (any, error) {
	names, err := packageNames(c)
	if err != nil {
		return nil, err
	}
	m, err := packagerOf(ctx, c)
	if err != nil {
		return nil, err
	}
	versions := map[string]any{}
	for _, name := range names {
		if err := checkPackage(name); err != nil {
			return nil, err
		}
		if versions[name], err = m.candidate(ctx, name); err != nil {
			return nil, err
		}
	}
	return oneOrAll(names, versions), nil
}

func pkgInstall(ctx context.Context, c *function.Call) (any, error) {
	words, err := packageWords(c)
	if err != nil {
		return nil, err
	}
	m, err := packagerOf(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.Has("version") {
		if len(words) != 1 {
			return nil, function.Invalid("a version belongs to one package, not to %d", len(words))
		}
		words[0].version = c.String("version")
	}
	args, err := m.words(words)
	if err != nil {
		return nil, err
	}
	if c.Bool("test") {
		return m.wouldInstall(ctx, args)
	}
	return m.change(ctx, slices.Concat(m.install, []string{"--"}, args))
}

func removePackages(ctx context.Context, c *function.Call, command func(*packager) []string) (any, error) {
	words, err := packageWords(c)
	if err != nil {
		return nil, err
	}
	m, err := findPackager()
	if err != nil {
		return nil, err
	}
	installed, err := m.installed(ctx)
	if err != nil {
		return nil, err
	}
	words = slices.DeleteFunc(words, func(w packageWord) bool { return installed[w.name] == nil })
	if len(words) == 0 {
		return map[string]any{}, nil // a missing package needs no removal
	}
	args, err := m.words(words)
	if err != nil {
		return nil, err
	}
	return m.change(ctx, slices.Concat(command(m), []string{"--"}, args))
}

// packageWord is a package to install or remove; "" is any version.
type packageWord struct{ name, version string }

// packageWords reads the arguments name and pkgs; an item of pkgs is a name or a dictionary of
// names and versions.
func packageWords(c *function.Call) ([]packageWord, error) {
	var words []packageWord
	for _, name := range c.Words("name") {
		words = append(words, packageWord{name: name})
	}
	for _, item := range c.List("pkgs") {
		versions, isMap := item.(map[string]any)
		if !isMap {
			name, err := function.ToString(item)
			if err != nil {
				return nil, err
			}
			words = append(words, packageWord{name: name})
		}
		for _, name := range slices.Sorted(maps.Keys(versions)) {
			version, err := function.ToString(versions[name])
			if err != nil && versions[name] != nil {
				return nil, err
			}
			words = append(words, packageWord{name, version})
		}
	}
	if len(words) == 0 {
		return nil, function.Invalid("name a package")
	}
	return words, nil
}
