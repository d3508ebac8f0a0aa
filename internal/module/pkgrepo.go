package module

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/function"
)

// aptParams and rpmParams are the parameters of a repository for only one kind of manager.
var (
	aptParams = []function.Param{{Name: "architectures", Kind: function.Words}, {Name: "comps", Kind: function.Words}, {Name: "signedby", Kind: function.Path}}
	rpmParams = []function.Param{
		{Name: "baseurl", Kind: function.String}, {Name: "gpgcheck", Kind: function.Bool}, {Name: "gpgkey", Kind: function.String},
		{Name: "metalink", Kind: function.String}, {Name: "mirrorlist", Kind: function.String}, {Name: "name", Kind: function.String},
	}
	repoName    = function.Param{Name: "repo", Kind: function.String, Required: true}
	repoRefresh = function.Param{Name: "refresh", Kind: function.Bool, Default: true}
)

// repoDirs are the directories of repository files, and the suffix of their names.
var repoDirs = map[string]struct{ dir, suffix string }{
	"apt":    {"/etc/apt/sources.list.d", ".list"},
	"dnf":    {"/etc/yum.repos.d", ".repo"},
	"zypper": {"/etc/zypp/repos.d", ".repo"},
}

const aptMain = "/etc/apt/sources.list"

// repoLock serialises changes.
var repoLock sync.Mutex

// repoManager returns the package manager; it must be one whose repositories are files.
func repoManager(what string) (*packager, error) {
	m, err := findPackager()
	if err != nil {
		return nil, err
	}
	if repoDirs[m.name].dir == "" {
		return nil, function.Unavailable(what + " with " + m.name)
	}
	return m, nil
}

// repoFile is one file with repositories.
type repoFile struct{ path, text string }

// repoFiles returns the existing files, sorted by name.
func repoFiles(c *function.Call, m *packager) ([]repoFile, error) {
	paths, _ := filepath.Glob(c.Host.Path(repoDirs[m.name].dir) + "/*") // the pattern is valid
	if m.name == "apt" {
		paths = append([]string{c.Host.Path(aptMain)}, paths...)
	}
	var files []repoFile
	for _, path := range paths {
		if ext := filepath.Ext(path); ext != repoDirs[m.name].suffix && (m.name != "apt" || ext != ".sources") {
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, repoFile{path, string(text)})
	}
	return files, nil
}

func pkgRepos(_ context.Context, c *function.Call) (any, error) {
	_, repos, err := allRepos(c, "list_repos")
	return repos, err
}

func pkgGetRepo(_ context.Context, c *function.Call) (any, error) {
	name := c.String("repo")
	m, repos, err := allRepos(c, "get_repo")
	if err != nil {
		return nil, err
	}
	if repo, ok := repos[strings.TrimSuffix(name, "/")]; ok {
		return repo, nil
	}
	if m.name != "apt" {
		return map[string]any{}, nil
	}
	want, err := aptEntry(name)
	if err != nil {
		return nil, err
	}
	files, err := repoFiles(c, m)
	for _, f := range files {
		for _, r := range aptRepos(f) {
			if r.is(want) {
				return r.shown(f.path), err
			}
		}
	}
	return map[string]any{}, err
}

// allRepos returns the repositories by address or name, and their package manager.
func allRepos(c *function.Call, what string) (*packager, map[string]any, error) {
	m, err := repoManager(what)
	if err != nil {
		return nil, nil, err
	}
	files, err := repoFiles(c, m)
	repos := map[string]any{}
	for _, f := range files {
		if m.name != "apt" {
			maps.Copy(repos, rpmRepos(f))
			continue
		}
		for _, r := range aptRepos(f) {
			key := strings.TrimSuffix(r.uri, "/")
			list, _ := repos[key].([]any)
			repos[key] = append(list, r.shown(f.path))
		}
	}
	return m, repos, err
}

func pkgModRepo(ctx context.Context, c *function.Call) (any, error) {
	m, err := repoManager("mod_repo")
	if err != nil {
		return nil, err
	}
	if err := checkRepoArguments(c, m); err != nil {
		return nil, err
	}
	repoLock.Lock()
	defer repoLock.Unlock()
	files, err := repoFiles(c, m)
	if err != nil {
		return nil, err
	}
	if m.name != "apt" {
		return modRPM(c, m, files)
	}
	ret, err := modApt(c, m, files)
	if err != nil {
		return nil, err
	}
	return ret, m.fetchLists(ctx, c)
}

// fetchLists makes changes take effect for apt; the other managers do that themselves.
func (m *packager) fetchLists(ctx context.Context, c *function.Call) error {
	if m.name != "apt" || !c.Bool("refresh") {
		return nil
	}
	if _, err := m.run(ctx, m.refresh); err != nil {
		return errors.Join(errors.New("the repository was changed, but the lists of packages were not fetched; refresh=False does not try"), err)
	}
	return nil
}

// checkRepoArguments refuses arguments for another manager, and texts that would be more than one
// value in a file.
func checkRepoArguments(c *function.Call, m *packager) error {
	others := aptParams
	if m.name == "apt" {
		others = rpmParams
	}
	for _, p := range others {
		if c.Has(p.Name) {
			return function.Invalid("%s is not a setting of a repository of %s", p.Name, m.name)
		}
	}
	if c.Has("enabled") && c.Has("disabled") {
		return function.Invalid("enabled and disabled are both given")
	}
	for _, p := range c.Params() {
		for _, text := range repoTexts(c.Any(p.Name)) {
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				return function.Invalid("%s has a line break or another control character", p.Name)
			}
		}
	}
	return nil
}

func repoTexts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []string:
		return v
	}
	return nil
}

// disabledRepo returns the value of the arguments enabled and disabled; set is false if neither is
// given.
func disabledRepo(c *function.Call) (disabled, set bool) {
	if c.Has("enabled") {
		return !c.Bool("enabled"), true
	}
	return c.Bool("disabled"), c.Has("disabled")
}

// newRepoFile returns the path for a new repository: the argument file, which must be a file that
// the manager reads.
func newRepoFile(c *function.Call, m *packager, otherwise string) (string, error) {
	d := repoDirs[m.name]
	file := otherwise
	if c.Has("file") {
		file = c.String("file")
	}
	if m.name == "apt" && file == aptMain {
		return c.Host.Path(file), nil
	}
	stem, ok := strings.CutSuffix(filepath.Base(file), d.suffix)
	if filepath.Dir(file) != d.dir || !ok || !isRepoWord(stem) {
		return "", function.Invalid("%s reads no %s: name a file %s/NAME%s", m.name, file, d.dir, d.suffix)
	}
	return c.Host.Path(file), nil
}

// isRepoWord reports whether s can be the name of a repository or of its file.
func isRepoWord(s string) bool {
	return s != "" && s[0] != '.' && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-") == ""
}

func pkgDelRepo(ctx context.Context, c *function.Call) (any, error) {
	m, err := repoManager("del_repo")
	if err != nil {
		return nil, err
	}
	repoLock.Lock()
	defer repoLock.Unlock()
	files, err := repoFiles(c, m)
	if err != nil {
		return nil, err
	}
	drop := func(f repoFile) (string, bool, error) {
		text, found := cutSection(f.text, c.String("repo"))
		return text, found, nil
	}
	if m.name == "apt" {
		want, err := aptEntry(c.String("repo"))
		if err != nil {
			return nil, err
		}
		drop = func(f repoFile) (string, bool, error) { return editApt(f, want, want.without) }
	}
	changes, err := dropRepo(c, files, drop)
	if err != nil {
		return nil, err
	}
	return changes, m.fetchLists(ctx, c)
}

// dropRepo removes a repository from all files. A file that is then empty is deleted.
func dropRepo(c *function.Call, files []repoFile, drop func(repoFile) (string, bool, error)) (string, error) {
	var changes []string
	for _, f := range files {
		text, found, err := drop(f)
		if err != nil {
			return "", err
		}
		if !found {
			continue
		}
		if strings.TrimSpace(text) == "" && f.path != c.Host.Path(aptMain) {
			err = os.Remove(f.path)
			changes = append(changes, "File "+f.path+" containing repo '"+c.String("repo")+"' has been removed.")
		} else {
			err = replaceText(f.path, text, 0o644)
			changes = append(changes, "Repo '"+c.String("repo")+"' has been removed from "+f.path+".")
		}
		if err != nil {
			return "", err
		}
	}
	if changes == nil {
		return "", errors.New("there is no repository " + c.String("repo"))
	}
	return strings.Join(changes, "\n"), nil
}

// without returns r without the components of want; false if nothing is left.
func (want aptRepo) without(r aptRepo) (aptRepo, bool) {
	if len(want.comps) == 0 {
		return r, false
	}
	before := len(r.comps)
	r.comps = slices.DeleteFunc(slices.Clone(r.comps), func(comp string) bool { return slices.Contains(want.comps, comp) })
	return r, len(r.comps) > 0 || before == 0
}
