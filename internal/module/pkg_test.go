package module

import (
	"os"
	"path/filepath"
	"testing"
)

// fakeApt is a system of apt whose packages are lines in a file: bash and vim
// are installed, bash can be upgraded.
func fakeApt(t *testing.T) {
	t.Helper()
	db := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(db, []byte("installed bash 5.1-2\ninstalled vim 2:9.0\nconfig-files old 1.0\ninstalled linux 6.1\ninstalled linux 6.2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	onlyPrograms(t, "sh", "cat", "sed")
	fakeProgram(t, "dpkg-query", "cat "+db)
	fakeProgram(t, "apt-cache", `case "$4" in
bash) printf 'bash:\n  Installed: 5.1-2\n  Candidate: 5.2-1\n';;
vim) printf 'vim:\n  Installed: 2:9.0\n  Candidate: 2:9.0\n';;
foo) printf 'foo:\n  Installed: (none)\n  Candidate: 1.2\n';;
esac`)
	fakeProgram(t, "apt-get", `
test "$DEBIAN_FRONTEND" = noninteractive || exit 9
case "$*" in
*--just-print*) printf 'Inst bash [5.1-2] (5.2-1 Debian:12/stable [amd64])\nInst new (1.0 Debian)\nConf bash\n';;
*"install -- broken") echo "E: Unable to locate package broken" >&2; exit 100;;
*"install -- foo"*) echo "installed foo 1.2" >> `+db+`;;
*"remove -- vim"|*"purge -- vim") sed -i '/vim/d' `+db+`;;
*dist-upgrade) sed -i 's/5.1-2/5.2-1/' `+db+`;;
esac`)
}

const aptYes = "<apt-get><-q><-y><-o><DPkg::Options::=--force-confold><-o><DPkg::Options::=--force-confdef>"

func TestPackagesAreListed(t *testing.T) {
	fakeApt(t)
	for _, tt := range []struct {
		function string
		args     []any
		kwargs   map[string]any
		want     any
	}{
		{"pkg.list_pkgs", nil, nil, map[string]any{"bash": "5.1-2", "vim": "2:9.0", "linux": "6.1,6.2"}},
		{"pkg.list_pkgs", nil, map[string]any{"versions_as_list": true}, map[string]any{"bash": []any{"5.1-2"}, "vim": []any{"2:9.0"}, "linux": []any{"6.1", "6.2"}}},
		{"pkg.version", []any{"bash"}, nil, "5.1-2"},
		{"pkg.version", []any{"old"}, nil, ""},
		{"pkg.version", []any{"bash", "nosuch"}, nil, map[string]any{"bash": "5.1-2", "nosuch": ""}},
		{"pkg.version", []any{"v*"}, nil, map[string]any{"vim": "2:9.0"}},
		{"pkg.latest_version", []any{"bash"}, nil, "5.2-1"},
		{"pkg.latest_version", []any{"vim"}, nil, ""},
		{"pkg.latest_version", []any{"foo"}, nil, "1.2"},
		{"pkg.available_version", []any{"foo", "nosuch"}, nil, map[string]any{"foo": "1.2", "nosuch": ""}},
		{"pkg.list_upgrades", nil, nil, map[string]any{"bash": "5.2-1"}},
		{"pkg.upgrade_available", []any{"bash"}, nil, true},
		{"pkg.upgrade_available", []any{"vim"}, nil, false},
	} {
		same(t, tt.function+repr(tt.args), good(t, nil, tt.function, tt.kwargs, tt.args...), tt.want)
	}
	bad(t, nil, "pkg.version", "name a package", nil)
	bad(t, nil, "pkg.latest_version", "is not the name or version of a package", nil, "-evil")
	calls(t)
	good(t, nil, "pkg.refresh_db", nil)
	wantCalls(t, "refresh_db", "<apt-get><-q><update>")
}

func TestPackagesAreChanged(t *testing.T) {
	fakeApt(t)
	same(t, "install", good(t, nil, "pkg.install", map[string]any{"refresh": true}, "foo"), map[string]any{"foo": map[string]any{"old": "", "new": "1.2"}})
	wantCalls(t, "install", "<apt-get><-q><update>", "<dpkg-query><-W><-f><${db:Status-Status} ${Package} ${Version}", ">",
		aptYes+"<install><--><foo>", "<dpkg-query><-W><-f><${db:Status-Status} ${Package} ${Version}", ">")
	same(t, "remove", good(t, nil, "pkg.remove", nil, "vim,nosuch"), map[string]any{"vim": map[string]any{"old": "2:9.0", "new": ""}})
	calls(t)
	same(t, "remove again", good(t, nil, "pkg.purge", nil, "vim"), map[string]any{})
	wantCalls(t, "remove again", "<dpkg-query><-W><-f><${db:Status-Status} ${Package} ${Version}", ">")
	same(t, "upgrade", good(t, nil, "pkg.upgrade", nil), map[string]any{"bash": map[string]any{"old": "5.1-2", "new": "5.2-1"}})
	calls(t)
	good(t, nil, "pkg.install", map[string]any{"pkgs": []any{"a", map[string]any{"b": "1.2-3"}}})
	good(t, nil, "pkg.install", map[string]any{"version": "2:1.0"}, "c")
	got := calls(t)
	if got[2] != aptYes+"<install><--><a><b=1.2-3>" || got[7] != aptYes+"<install><--><c=2:1.0>" {
		t.Errorf("called %q", got)
	}
	bad(t, nil, "pkg.install", "ERROR: apt: exit code 100: E: Unable to locate package broken", nil, "broken")
	calls(t)
	for name, kwargs := range map[string]map[string]any{
		"nothing":      nil,
		"an option":    {"name": "-o"},
		"a path":       {"name": "./x.deb"},
		"a pattern":    {"name": "lib.*"},
		"a removal":    {"name": "bash-"},
		"two versions": {"name": "a,b", "version": "1"},
		"bad version":  {"name": "a", "version": "1 -o x"},
	} {
		if r := run(t, nil, "pkg.install", kwargs); r.Success {
			t.Errorf("%s was accepted", name)
		}
	}
	if got := calls(t); got != nil {
		t.Errorf("refused calls ran %q", got)
	}
}

func TestNoPackageManager(t *testing.T) {
	onlyPrograms(t, "sh")
	bad(t, nil, "pkg.version", "not available here", nil, "bash")
	fakeProgram(t, "apk", `case "$*" in "info -v") echo busybox-extras-1.36.1-r5;; *) echo 'busybox-extras-1.36.1-r5 < 1.36.1-r6';; esac`)
	same(t, "apk", good(t, nil, "pkg.version", nil, "busybox-extras"), "1.36.1-r5")
	same(t, "apk upgrades", good(t, nil, "pkg.list_upgrades", nil), map[string]any{"busybox-extras": "1.36.1-r6"})
	bad(t, nil, "pkg.latest_version", "latest version by apk: not available here", nil, "busybox-extras")
}

func TestPackageListingsAreRead(t *testing.T) {
	for _, tt := range []struct {
		what          string
		parse         func(string) (string, string)
		line          string
		name, version string
	}{
		{"dnf", parseDnfUpgrade, "python3.11.x86_64   3.11.5-1.el9   baseos", "python3.11", "3.11.5-1.el9"},
		{"dnf header", parseDnfUpgrade, "Last metadata expiration check", "", ""},
		{"zypper", parseZypperUpgrade, "v  | Main Repo | bash | 5.1-1 | 5.2-1 | x86_64", "bash", "5.2-1"},
		{"zypper header", parseZypperUpgrade, "S  | Repository | Name | Current | Available | Arch", "", ""},
		{"pacman", parsePacmanUpgrade, "bash 5.2.021-1 -> 5.2.026-2 [ignored]", "bash", "5.2.026-2"},
		{"pacman junk", parsePacmanUpgrade, "warning: database", "", ""},
		{"apk", parseApk, "so:x", "", ""},
		{"rpm", parseTwoFields, "bash 5.2-1", "bash", "5.2-1"},
		{"two versions of apt", parseAptUpgrade, "Inst new (1.0 Debian:12/stable [amd64])", "", ""},
	} {
		if name, version := tt.parse(tt.line); name != tt.name || version != tt.version {
			t.Errorf("%s: %q read as %q, %q", tt.what, tt.line, name, version)
		}
	}
}

func TestPackagesOfThisMachine(t *testing.T) {
	if _, err := findPackager(); err != nil {
		t.Skip(err)
	}
	all := good(t, nil, "pkg.list_pkgs", nil).(map[string]any)
	if len(all) == 0 {
		t.Error("nothing is installed")
	}
}
