package module

import (
	"os"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/function"
)

// aptWithRepos is a machine of apt with files of repositories of both forms.
func aptWithRepos(t *testing.T) *function.Host {
	t.Helper()
	onlyPrograms(t, "sh")
	fakeProgram(t, "apt-get", "")
	fakeProgram(t, "apt-cache", "")
	fakeProgram(t, "dpkg-query", "")
	return machineWith(t, map[string]string{
		"etc/apt/sources.list": "# ours\ndeb [arch=amd64] http://deb.example.com/debian/ trixie main # first\n" +
			"# deb http://old.example.com/debian trixie main contrib\ndeb-src http://deb.example.com/debian trixie main\n",
		"etc/apt/sources.list.d/x.list":    "deb http://x.example.com/ stable main\n",
		"etc/apt/sources.list.d/y.sources": "# two\nTypes: deb\nURIs: https://y.example.com/apt\nSuites: stable\nComponents: main\nSigned-By:\n -----BEGIN\n .\n\nTypes: deb deb-src\nURIs: https://z.example.com/apt\nSuites: stable\nComponents: main",
	})
}

func aptFile(t *testing.T, m *function.Host, name string) string {
	t.Helper()
	text, err := os.ReadFile(m.Path("/etc/apt/" + name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func TestRepositoriesOfAptAreChanged(t *testing.T) {
	m := aptWithRepos(t)
	const main = "deb http://deb.example.com/debian trixie"
	ret := good(t, m, "pkg.mod_repo", nil, main+" contrib").(map[string]any)[main+" contrib"]
	same(t, "added component", ret, map[string]any{
		"file": m.Path("/etc/apt/sources.list"), "type": "deb", "dist": "trixie", "comps": []any{"main", "contrib"}, "disabled": false, "uri": "http://deb.example.com/debian",
		"architectures": []any{"amd64"}, "line": "deb [arch=amd64] http://deb.example.com/debian/ trixie main contrib",
	})
	wantCalls(t, "then the lists are fetched", "<apt-get><-q><update>")
	off := map[string]any{"refresh": false}
	good(t, m, "pkg.mod_repo", map[string]any{"refresh": false, "comps": "main,non-free", "disabled": true, "signedby": "/usr/share/k.gpg"}, main)
	good(t, m, "pkg.mod_repo", map[string]any{"refresh": false, "enabled": true}, "deb http://old.example.com/debian trixie")
	good(t, m, "pkg.mod_repo", map[string]any{"refresh": false, "file": "/etc/apt/sources.list.d/new.list", "architectures": []any{"amd64", "arm64"}}, "deb http://new.example.com stable main")
	good(t, m, "pkg.mod_repo", off, "deb http://last.example.com ./")
	same(t, "sources.list", aptFile(t, m, "sources.list"), "# ours\n# deb [arch=amd64 signed-by=/usr/share/k.gpg] http://deb.example.com/debian/ trixie main non-free # first\n"+
		"deb http://old.example.com/debian trixie main contrib\ndeb-src http://deb.example.com/debian trixie main\ndeb http://last.example.com ./\n")
	same(t, "a new file", aptFile(t, m, "sources.list.d/new.list"), "deb [arch=amd64,arm64] http://new.example.com stable main\n")
	before := aptFile(t, m, "sources.list.d/y.sources")
	good(t, m, "pkg.mod_repo", map[string]any{"refresh": false, "disabled": true, "signedby": "/k"}, "deb https://y.example.com/apt stable contrib")
	same(t, "the newer form", aptFile(t, m, "sources.list.d/y.sources"), strings.Replace(before, "Components: main\nSigned-By:\n -----BEGIN\n .\n", "Components: main contrib\nSigned-By: /k\nEnabled: no\n", 1))
	wantCalls(t, "refresh=False")
}

func TestRepositoriesOfAptAreRemoved(t *testing.T) {
	m := aptWithRepos(t)
	off := map[string]any{"refresh": false}
	good(t, m, "pkg.del_repo", off, "deb http://old.example.com/debian trixie contrib")
	good(t, m, "pkg.del_repo", off, "deb http://deb.example.com/debian trixie")
	same(t, "sources.list", aptFile(t, m, "sources.list"), "# ours\n# deb http://old.example.com/debian trixie main\ndeb-src http://deb.example.com/debian trixie main\n")
	wantCalls(t, "refresh=False")
	same(t, "the last of a file", good(t, m, "pkg.del_repo", nil, "deb http://x.example.com stable main"),
		"File "+m.Path("/etc/apt/sources.list.d/x.list")+" containing repo 'deb http://x.example.com stable main' has been removed.")
	wantCalls(t, "then the lists are fetched", "<apt-get><-q><update>")
	if _, err := os.Stat(m.Path("/etc/apt/sources.list.d/x.list")); !os.IsNotExist(err) {
		t.Errorf("the file of nothing is there: %v", err)
	}
	good(t, m, "pkg.del_repo", off, "deb https://y.example.com/apt stable")
	same(t, "the newer form", aptFile(t, m, "sources.list.d/y.sources"), "Types: deb deb-src\nURIs: https://z.example.com/apt\nSuites: stable\nComponents: main")
	bad(t, m, "pkg.del_repo", "means 2 repositories at once", off, "deb https://z.example.com/apt stable")
	bad(t, m, "pkg.del_repo", "there is no repository", off, "deb http://nosuch.example.com stable")
}

// Only entries of a repository are written, and only to files of the package manager.
func TestOnlyRepositoryEntriesAreWritten(t *testing.T) {
	m := aptWithRepos(t)
	const repo = "deb http://evil.example.com stable main"
	for name, c := range map[string]struct {
		repo   string
		kwargs map[string]any
	}{
		"two lines":               {repo + "\ndeb http://x.example.com stable", nil},
		"a line in a component":   {repo, map[string]any{"comps": []any{"main\ndeb http://x.example.com stable"}}},
		"a space in a component":  {repo, map[string]any{"comps": []any{"main deb"}}},
		"options as architecture": {repo, map[string]any{"architectures": []any{"amd64] http://x"}}},
		"a key with an option":    {repo, map[string]any{"signedby": "/k trusted=yes"}},
		"no repository":           {"http://evil.example.com stable", nil},
		"a file of the system":    {repo, map[string]any{"file": "/etc/cron.d/x"}},
		"a file that apt ignores": {repo, map[string]any{"file": "/etc/apt/sources.list.d/x.conf"}},
		"a file further down":     {repo, map[string]any{"file": "/etc/apt/sources.list.d/a/x.list"}},
		"both ways":               {repo, map[string]any{"enabled": true, "disabled": true}},
		"a setting of dnf":        {repo, map[string]any{"baseurl": "http://x"}},
	} {
		if r := run(t, m, "pkg.mod_repo", c.kwargs, c.repo); r.Success {
			t.Errorf("%s: %v", name, r.Return)
		}
	}
	if text := aptFile(t, m, "sources.list"); strings.Contains(text, "evil") {
		t.Errorf("sources.list is %q", text)
	}
	wantCalls(t, "what is refused")
}

func TestRepositoriesOfDnf(t *testing.T) {
	onlyPrograms(t, "sh")
	fakeProgram(t, "dnf", "")
	fakeProgram(t, "rpm", "")
	m := machineWith(t, map[string]string{"etc/yum.repos.d/base.repo": "# base\n[base]\nname = Base\nbaseurl=http://a/\n http://b/\nenabled=1\n\n# more\n[extra]\nname=Extra\nenabled=0\n"})
	same(t, "mod_repo", good(t, m, "pkg.mod_repo", map[string]any{"baseurl": "http://c/", "enabled": false, "gpgcheck": true, "name": ""}, "base"), map[string]any{
		"base": map[string]any{"file": m.Path("/etc/yum.repos.d/base.repo"), "baseurl": "http://c/", "enabled": "0", "gpgcheck": "1"},
	})
	good(t, m, "pkg.mod_repo", map[string]any{"baseurl": "https://epel/", "gpgkey": "file:///k"}, "epel")
	repos := good(t, m, "pkg.list_repos", nil).(map[string]any)
	same(t, "epel", repos["epel"], map[string]any{"file": m.Path("/etc/yum.repos.d/epel.repo"), "name": "epel", "baseurl": "https://epel/", "gpgkey": "file:///k"})
	if len(repos) != 3 {
		t.Errorf("list_repos: %v", repos)
	}
	same(t, "get_repo", good(t, m, "pkg.get_repo", nil, "epel"), repos["epel"])
	same(t, "get_repo of none", good(t, m, "pkg.get_repo", nil, "nosuch"), map[string]any{})
	good(t, m, "pkg.del_repo", nil, "extra")
	good(t, m, "pkg.del_repo", nil, "epel")
	same(t, "what is left", content(t, m.Path("/etc/yum.repos.d/base.repo")), "# base\n[base]\nbaseurl=http://c/\nenabled=0\ngpgcheck=1\n\n# more\n")
	if _, err := os.Stat(m.Path("/etc/yum.repos.d/epel.repo")); !os.IsNotExist(err) {
		t.Errorf("the file of nothing is there: %v", err)
	}
	bad(t, m, "pkg.mod_repo", "a new one has a baseurl", nil, "nosuch")
	bad(t, m, "pkg.mod_repo", "is not the name of a repository", map[string]any{"baseurl": "http://x"}, "../cron.d/x")
	bad(t, m, "pkg.mod_repo", "line break", map[string]any{"baseurl": "http://x\n[other]"}, "base")
	bad(t, m, "pkg.mod_repo", "not a setting of a repository of dnf", map[string]any{"comps": "main"}, "base")
	bad(t, m, "pkg.del_repo", "there is no repository", nil, "nosuch")
	wantCalls(t, "dnf looks by itself")
}
