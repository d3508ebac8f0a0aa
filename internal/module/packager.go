package module

import (
	"context"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
)

// packager is a package manager of the system: its commands as argument vectors, and parsers for
// their output.
type packager struct {
	name     string
	programs []string // all must exist

	list      []string
	parseList func(line string) (name, version string)

	upgrades      []string
	upgradesFound int // exit code that also means success
	parseUpgrade  func(line string) (name, version string)

	// latest is the command that shows the best version of the package whose name is appended.
	latest      []string
	parseLatest func(output string) (installed, candidate string)

	install, remove, purge, upgrade, refresh []string
	at                                       string // between a name and its version; "" if versions are not supported
}

// packagers are the supported managers, in the order of detection: a system can have the programs
// of another manager, above all dpkg, as a package.
var packagers = []packager{
	{
		name: "apt", programs: []string{"apt-get", "apt-cache", "dpkg-query"},
		list:         []string{"dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n"},
		parseList:    parseDpkg,
		upgrades:     []string{"apt-get", "--just-print", "dist-upgrade"},
		parseUpgrade: parseAptUpgrade,
		latest:       []string{"apt-cache", "-q", "policy", "--"},
		parseLatest:  parseAptPolicy,
		install:      aptGet("install"), remove: aptGet("remove"), purge: aptGet("purge"), upgrade: aptGet("dist-upgrade"),
		refresh: []string{"apt-get", "-q", "update"}, at: "=",
	},
	{
		name: "dnf", programs: []string{"dnf", "rpm"},
		list: rpmList, parseList: parseTwoFields,
		upgrades: []string{"dnf", "-q", "check-update"}, upgradesFound: 100, parseUpgrade: parseDnfUpgrade,
		latest:      []string{"dnf", "-q", "repoquery", "--latest-limit=1", "--qf", "%{evr}\n", "--"},
		parseLatest: parseFirstLine,
		install:     []string{"dnf", "-y", "install"}, remove: []string{"dnf", "-y", "remove"}, purge: []string{"dnf", "-y", "remove"},
		upgrade: []string{"dnf", "-y", "upgrade"}, refresh: []string{"dnf", "-q", "makecache", "--refresh"}, at: "-",
	},
	{
		name: "zypper", programs: []string{"zypper", "rpm"},
		list: rpmList, parseList: parseTwoFields,
		upgrades: []string{"zypper", "--non-interactive", "--quiet", "list-updates"}, parseUpgrade: parseZypperUpgrade,
		install: zypper("install"), remove: zypper("remove"), purge: zypper("remove"), upgrade: zypper("update"),
		refresh: zypper("refresh"), at: "=",
	},
	{
		name: "apk", programs: []string{"apk"},
		list: []string{"apk", "info", "-v"}, parseList: parseApk,
		upgrades: []string{"apk", "version", "-v", "-l", "<"}, parseUpgrade: parseApkUpgrade,
		install: []string{"apk", "add"}, remove: []string{"apk", "del"}, purge: []string{"apk", "del", "--purge"},
		upgrade: []string{"apk", "upgrade"}, refresh: []string{"apk", "update"}, at: "=",
	},
	{
		name: "pacman", programs: []string{"pacman"},
		list: []string{"pacman", "-Q"}, parseList: parseTwoFields,
		upgrades: []string{"pacman", "-Qu"}, upgradesFound: 1, parseUpgrade: parsePacmanUpgrade,
		install: []string{"pacman", "-S", "--noconfirm", "--needed"}, remove: []string{"pacman", "-R", "--noconfirm"},
		purge: []string{"pacman", "-Rn", "--noconfirm"}, upgrade: []string{"pacman", "-Su", "--noconfirm"},
		refresh: []string{"pacman", "-Sy"},
	},
}

var rpmList = []string{"rpm", "-qa", "--qf", `%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n`}

// aptGet never asks questions: a changed configuration file stays.
func aptGet(verb string) []string {
	return []string{"apt-get", "-q", "-y", "-o", "DPkg::Options::=--force-confold", "-o", "DPkg::Options::=--force-confdef", verb}
}

func zypper(verb string) []string {
	return []string{"zypper", "--non-interactive", verb}
}

// findPackager returns the first manager whose programs all exist.
func findPackager() (*packager, error) {
	for i := range packagers {
		missing := func(p string) bool { _, err := exec.LookPath(p); return err != nil }
		if !slices.ContainsFunc(packagers[i].programs, missing) {
			return &packagers[i], nil
		}
	}
	return nil, function.Unavailable("package manager (apt, dnf, zypper, apk or pacman)")
}

// run runs one command of the manager and returns its stdout. It has no timeout: only the job may
// interrupt it.
func (m *packager) run(ctx context.Context, args []string, alsoFine ...int) (string, error) {
	p := process.Program{Args: args, Env: append(process.Environ(true), "DEBIAN_FRONTEND=noninteractive")}
	e, err := p.Run(ctx)
	if err != nil {
		return "", err
	}
	if e.Code != 0 && !slices.Contains(alsoFine, e.Code) {
		return "", e.Failure(m.name)
	}
	return e.Stdout, nil
}

// installed returns the versions of the installed packages, sorted, by name.
func (m *packager) installed(ctx context.Context) (map[string][]string, error) {
	text, err := m.run(ctx, m.list)
	all := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, version := m.parseList(strings.TrimSpace(line)); name != "" {
			all[name] = append(all[name], version)
		}
	}
	for name := range all {
		slices.Sort(all[name])
	}
	return all, err
}

// upgradable returns the packages that can be upgraded, with the new version.
func (m *packager) upgradable(ctx context.Context) (map[string]any, error) {
	text, err := m.run(ctx, m.upgrades, m.upgradesFound)
	all := map[string]any{}
	for line := range strings.Lines(text) {
		if name, version := m.parseUpgrade(strings.TrimSpace(line)); name != "" {
			all[name] = version
		}
	}
	return all, err
}

// candidate returns the version of a package that could be installed, "" if there is none or it is
// already installed.
func (m *packager) candidate(ctx context.Context, name string) (string, error) {
	if m.latest == nil {
		return "", function.Unavailable("latest version by " + m.name)
	}
	text, err := m.run(ctx, append(slices.Clone(m.latest), name))
	if err != nil {
		return "", err
	}
	installed, candidate := m.parseLatest(text)
	if installed == "" {
		all, err := m.installed(ctx)
		if err != nil {
			return "", err
		}
		installed = strings.Join(all[name], ",")
	}
	if candidate == installed {
		candidate = ""
	}
	return candidate, nil
}

// change runs a command and returns its changes: by package, the versions before and after, "" for
// none.
func (m *packager) change(ctx context.Context, args []string) (any, error) {
	before, err := m.installed(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := m.run(ctx, args); err != nil {
		return nil, err
	}
	after, err := m.installed(ctx)
	changes := map[string]any{}
	for _, all := range []map[string][]string{before, after} {
		for name := range maps.Keys(all) {
			if !slices.Equal(before[name], after[name]) {
				changes[name] = map[string]any{"old": strings.Join(before[name], ","), "new": strings.Join(after[name], ",")}
			}
		}
	}
	return changes, err
}

// words returns packages in the format of the manager.
func (m *packager) words(packages []packageWord) ([]string, error) {
	var words []string
	for _, p := range packages {
		if err := checkPackage(p.name); err != nil {
			return nil, err
		}
		word := p.name
		if p.version != "" {
			if m.at == "" {
				return nil, function.Invalid("%s installs no version of one's choice", m.name)
			}
			if err := checkPackage(p.version); err != nil {
				return nil, err
			}
			word += m.at + p.version
		}
		words = append(words, word)
	}
	return words, nil
}

// checkPackage refuses words that a manager would not take for a name or a version: a path, a
// pattern, an option, or for apt a hyphen at the end, which means removing instead of installing.
func checkPackage(s string) error {
	if regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9+._:~^@-]*[A-Za-z0-9+._:~^@])?$`).MatchString(s) {
		return nil
	}
	return function.Invalid("%q is not the name or version of a package", s)
}

func parseDpkg(line string) (name, version string) {
	if f := strings.Fields(line); len(f) == 3 && f[0] == "installed" {
		return f[1], f[2]
	}
	return "", ""
}

func parseTwoFields(line string) (name, version string) {
	if f := strings.Fields(line); len(f) == 2 {
		return f[0], f[1]
	}
	return "", ""
}

// parseAptUpgrade parses `Inst bash [5.1-2] (5.2-1 Debian:12/stable [amd64])`; without a version in
// brackets the package would be new.
func parseAptUpgrade(line string) (name, version string) {
	if f := strings.Fields(line); len(f) > 3 && f[0] == "Inst" && strings.HasPrefix(f[2], "[") {
		return f[1], strings.TrimPrefix(f[3], "(")
	}
	return "", ""
}

func parseAptPolicy(output string) (installed, candidate string) {
	for line := range strings.Lines(output) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case v == "(none)":
		case name == "Installed":
			installed = v
		case name == "Candidate":
			candidate = v
		}
	}
	return installed, candidate
}

func parseFirstLine(output string) (installed, candidate string) {
	candidate, _, _ = strings.Cut(strings.TrimSpace(output), "\n")
	return "", strings.TrimPrefix(candidate, "0:")
}

// parseDnfUpgrade reads `bash.x86_64  5.2.26-4.el9  baseos`.
func parseDnfUpgrade(line string) (name, version string) {
	f := strings.Fields(line)
	if len(f) != 3 || !strings.Contains(f[0], ".") {
		return "", ""
	}
	return f[0][:strings.LastIndex(f[0], ".")], f[1]
}

// parseZypperUpgrade parses `v | Main | bash | 5.1-1 | 5.2-1 | x86_64`.
func parseZypperUpgrade(line string) (name, version string) {
	f := strings.Split(line, "|")
	if len(f) != 6 || strings.TrimSpace(f[0]) != "v" {
		return "", ""
	}
	return strings.TrimSpace(f[2]), strings.TrimSpace(f[4])
}

// parseApk parses `busybox-extras-1.36.1-r5`: the version is the last two parts.
func parseApk(line string) (name, version string) {
	release := strings.LastIndex(line, "-")
	if release < 0 {
		return "", ""
	}
	i := strings.LastIndex(line[:release], "-")
	if i < 0 {
		return "", ""
	}
	return line[:i], line[i+1:]
}

// parseApkUpgrade reads `busybox-1.36.1-r5   < 1.36.1-r6`.
func parseApkUpgrade(line string) (name, version string) {
	f := strings.Fields(line)
	if len(f) < 3 || f[1] != "<" {
		return "", ""
	}
	name, _ = parseApk(f[0])
	return name, f[2]
}

// parsePacmanUpgrade parses `bash 5.2.021-1 -> 5.2.026-2`.
func parsePacmanUpgrade(line string) (name, version string) {
	if f := strings.Fields(line); len(f) >= 4 && f[2] == "->" {
		return f[0], f[3]
	}
	return "", ""
}
