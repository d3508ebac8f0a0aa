package module

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/process"
)

var (
	gitCwd   = Param{Name: "cwd", Kind: Path, Required: true}
	gitOpts  = Param{Name: "opts", Kind: String, Default: ""}
	gitUser  = Param{Name: "user", Kind: String}
	gitRev   = Param{Name: "rev", Kind: String, Default: "HEAD"}
	gitPlace = []Param{gitCwd, gitUser}
)

// gitModule works on git repositories.
var gitModule = &Module{
	Name: "git",
	Doc:  "Functions that work on git repositories by the program git. opts are further options, as on a command line. git never asks for a password, and uses no transport that runs a program.",
	Functions: []Function{
		{
			Name: "add", Doc: "Stage files.", Example: `salt '*' git.add /path/to/repo foo/bar.py`, Params: []Param{gitCwd, {Name: "filename", Kind: String, Required: true}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) { return c.git(ctx, "add", c.String("filename")) },
		},
		{
			Name: "branch", Doc: "Make a branch; with opts, change one.", Example: `salt '*' git.branch /path/to/repo newbranch`, Params: []Param{gitCwd, {Name: "name", Kind: String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				_, err := c.git(ctx, "branch", c.given("name")...)
				return done(err)
			},
		},
		{
			Name: "checkout", Doc: "Check out a branch, tag or commit; with force, over local changes.", Example: `salt '*' git.checkout /path/to/repo main`,
			Params: []Param{gitCwd, {Name: "rev", Kind: String, Required: true}, {Name: "force", Kind: Bool, Default: false}, gitOpts, gitUser}, Run: gitCheckout,
		},
		{
			Name: "clone", Doc: "Clone a repository to a path.", Example: `salt '*' git.clone /path/to/repo https://github.com/saltstack/salt.git`,
			Params: []Param{gitCwd, {Name: "url", Kind: String, Required: true}, {Name: "branch", Kind: String}, {Name: "depth", Kind: Int}, gitOpts, gitUser}, Run: gitClone,
		},
		{
			Name: "commit", Doc: "Commit what is staged, or a file.", Example: `salt '*' git.commit /path/to/repo 'The commit message'`,
			Params: []Param{gitCwd, {Name: "message", Kind: String, Required: true}, {Name: "filename", Kind: String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.gitWith(ctx, []string{"commit", "-m", c.String("message")}, c.given("filename")...)
			},
		},
		{
			Name: "config_get", Doc: "Return a setting, None if there is none.", Example: `salt '*' git.config_get user.name cwd=/path/to/repo`,
			Params: []Param{{Name: "key", Kind: String, Required: true}, {Name: "cwd", Kind: Path, Default: "/"}, gitUser, {Name: "global", Kind: Bool, Default: false}},
			Run: func(ctx context.Context, c *Call) (any, error) {
				e, err := c.runGit(ctx, append(c.scope("config"), "--get", c.String("key"))...)
				if err != nil || e.Code == 1 {
					return nil, err
				}
				return gitAnswer(e)
			},
		},
		{
			Name: "config_set", Doc: "Set a setting and return it.", Example: `salt '*' git.config_set user.email me@example.com cwd=/path/to/repo`,
			Params: []Param{{Name: "key", Kind: String, Required: true}, {Name: "value", Kind: String, Required: true}, {Name: "cwd", Kind: Path, Default: "/"}, gitUser, {Name: "global", Kind: Bool, Default: false}},
			Run: func(ctx context.Context, c *Call) (any, error) {
				e, err := c.runGit(ctx, append(c.scope("config"), "--replace-all", "--", c.String("key"), c.String("value"))...)
				if err == nil {
					_, err = gitAnswer(e)
				}
				return []string{c.String("value")}, err
			},
		},
		{
			Name: "current_branch", Doc: "Return the branch that is checked out, an empty text for none.", Example: `salt '*' git.current_branch /path/to/repo`, Params: gitPlace,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.gitWith(ctx, []string{"branch", "--show-current"})
			},
		},
		{
			Name: "describe", Doc: "Return the name that a commit has by the tags before it, or the start of its hash.", Example: `salt '*' git.describe /path/to/repo`, Params: []Param{gitCwd, gitRev, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.gitWith(ctx, []string{"describe", "--always", "--end-of-options", c.String("rev")})
			},
		},
		{
			Name: "diff", Doc: "Return what has changed between two commits, or since one.", Example: `salt '*' git.diff /path/to/repo HEAD~1 HEAD`,
			Params: []Param{gitCwd, {Name: "item1", Kind: String}, {Name: "item2", Kind: String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.gitWith(ctx, slices.Concat([]string{"diff", "--end-of-options"}, c.given("item1"), c.given("item2")))
			},
		},
		{
			Name: "fetch", Doc: "Fetch from a remote.", Example: `salt '*' git.fetch /path/to/repo remote=upstream`, Params: []Param{gitCwd, {Name: "remote", Kind: String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.git(ctx, "fetch", c.given("remote")...)
			},
		},
		{
			Name: "init", Doc: "Make a repository.", Example: `salt '*' git.init /path/to/repo`, Params: []Param{gitCwd, {Name: "bare", Kind: Bool, Default: false}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				args := []string{"init", "-q"}
				if c.Bool("bare") {
					args = append(args, "--bare")
				}
				return c.gitAt(ctx, "/", args, c.String("cwd"))
			},
		},
		{
			Name: "is_worktree", Doc: "Return whether a path is within a work tree.", Example: `salt '*' git.is_worktree /path/to/repo`, Params: gitPlace,
			Run: func(ctx context.Context, c *Call) (any, error) {
				e, err := c.runGit(ctx, "rev-parse", "--is-inside-work-tree")
				return strings.TrimSpace(e.Stdout) == "true", err
			},
		},
		{
			Name: "list_branches", Doc: "Return the branches; with remote, those of remotes.", Example: `salt '*' git.list_branches /path/to/repo`, Params: []Param{gitCwd, {Name: "remote", Kind: Bool, Default: false}, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				space := "refs/heads"
				if c.Bool("remote") {
					space = "refs/remotes"
				}
				return c.gitLines(ctx, "for-each-ref", "--format=%(refname:short)", space)
			},
		},
		{
			Name: "list_tags", Doc: "Return the tags.", Example: `salt '*' git.list_tags /path/to/repo`, Params: gitPlace,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.gitLines(ctx, "for-each-ref", "--format=%(refname:short)", "refs/tags")
			},
		},
		{
			Name: "log", Doc: "Return the last commits: hash, author, date and subject of each.", Example: `salt '*' git.log /path/to/repo count=3`, Params: []Param{gitCwd, gitRev, {Name: "count", Kind: Int, Default: 10}, gitUser}, Run: gitLog,
		},
		{
			Name: "ls_remote", Doc: "Return what a remote has: hashes by name.", Example: `salt '*' git.ls_remote remote=https://example.com/repo.git`,
			Params: []Param{{Name: "cwd", Kind: Path, Default: "/"}, {Name: "remote", Kind: String, Default: "origin"}, {Name: "ref", Kind: String}, gitUser}, Run: gitRemoteRefs,
		},
		{
			Name: "merge", Doc: "Merge a branch or commit.", Example: `salt '*' git.merge /path/to/repo upstream/main`, Params: []Param{gitCwd, {Name: "rev", Kind: String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.git(ctx, "merge", c.given("rev")...)
			},
		},
		{
			Name: "pull", Doc: "Fetch from a remote and merge.", Example: `salt '*' git.pull /path/to/repo opts='--rebase origin main'`, Params: []Param{gitCwd, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) { return c.git(ctx, "pull") },
		},
		{
			Name: "push", Doc: "Push a branch to a remote.", Example: `salt '*' git.push /path/to/repo origin main`,
			Params: []Param{gitCwd, {Name: "remote", Kind: String, Required: true}, {Name: "ref", Kind: String, Required: true}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.git(ctx, "push", c.String("remote"), c.String("ref"))
			},
		},
		{
			Name: "remote_get", Doc: "Return the addresses of a remote.", Example: `salt '*' git.remote_get /path/to/repo origin`, Params: []Param{gitCwd, {Name: "remote", Kind: String, Default: "origin"}, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				all, err := c.remotes(ctx)
				one, ok := all[c.String("remote")]
				if err == nil && !ok {
					err = errors.New("there is no remote " + c.String("remote"))
				}
				return one, err
			},
		},
		{
			Name: "remote_set", Doc: "Set the address of a remote.", Example: `salt '*' git.remote_set /path/to/repo git@example.com:me/repo.git remote=upstream`,
			Params: []Param{gitCwd, {Name: "url", Kind: String, Required: true}, {Name: "remote", Kind: String, Default: "origin"}, gitUser}, Run: gitRemoteSet,
		},
		{
			Name: "remotes", Doc: "Return the remotes, with the addresses for fetch and push.", Example: `salt '*' git.remotes /path/to/repo`, Params: gitPlace,
			Run: func(ctx context.Context, c *Call) (any, error) { return c.remotes(ctx) },
		},
		{
			Name: "reset", Doc: "Reset the work tree, as opts say.", Example: `salt '*' git.reset /path/to/repo opts='--hard origin/main'`, Params: []Param{gitCwd, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) { return c.git(ctx, "reset") },
		},
		{
			Name: "rev_parse", Doc: "Return the hash that a name stands for.", Example: `salt '*' git.rev_parse /path/to/repo HEAD`, Params: []Param{gitCwd, gitRev, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.gitWith(ctx, []string{"rev-parse", "--verify", "--end-of-options", c.String("rev")})
			},
		},
		{
			Name: "revision", Doc: "Return the hash of a commit; with short, its start.", Example: `salt '*' git.revision /path/to/repo main short=True`, Params: []Param{gitCwd, gitRev, {Name: "short", Kind: Bool, Default: false}, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				args := []string{"rev-parse", "--verify"}
				if c.Bool("short") {
					args = append(args, "--short")
				}
				return c.gitWith(ctx, append(args, "--end-of-options", c.String("rev")))
			},
		},
		{
			Name: "rm", Doc: "Remove files from the repository and the work tree.", Example: `salt '*' git.rm /path/to/repo foo/bar.py`, Params: []Param{gitCwd, {Name: "filename", Kind: String, Required: true}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) { return c.git(ctx, "rm", c.String("filename")) },
		},
		{
			Name: "status", Doc: "Return what has changed in the work tree: lists of paths by kind.", Example: `salt '*' git.status /path/to/repo`, Params: gitPlace, Run: gitStatus,
		},
		{
			Name: "tag", Doc: "Make a tag.", Example: `salt '*' git.tag /path/to/repo v1.0`, Params: []Param{gitCwd, {Name: "name", Kind: String, Required: true}, {Name: "ref", Kind: String, Default: "HEAD"}, {Name: "message", Kind: String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *Call) (any, error) {
				args := []string{"tag"}
				if c.Has("message") {
					args = append(args, "-a", "-m", c.String("message"))
				}
				return c.gitWith(ctx, args, c.String("name"), c.String("ref"))
			},
		},
		{
			Name: "version", Doc: "Return the version of git.", Example: `salt '*' git.version`,
			Run: func(ctx context.Context, _ *Call) (any, error) {
				text, err := output(ctx, "git", "--version")
				return strings.TrimPrefix(strings.TrimSpace(text), "git version "), err
			},
		},
	},
}

// given is the argument of a name as a list, empty where it has no value.
func (c *Call) given(name string) []string {
	if c.String(name) == "" {
		return nil
	}
	return []string{c.String(name)}
}

// git runs a command with the argument opts and returns what it wrote.
func (c *Call) git(ctx context.Context, command string, names ...string) (any, error) {
	return c.gitWith(ctx, []string{command}, names...)
}

// gitWith runs a command with options of its own; names are never options.
func (c *Call) gitWith(ctx context.Context, args []string, names ...string) (any, error) {
	return c.gitAt(ctx, c.String("cwd"), args, names...)
}

func (c *Call) gitAt(ctx context.Context, dir string, args []string, names ...string) (any, error) {
	for _, p := range c.params {
		if p.Name != "opts" {
			continue
		}
		words, err := splitCommand(c.String("opts"))
		if err != nil {
			return nil, err
		}
		args = append(args, words...)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "-") {
			return nil, invalid("%q begins with a hyphen: options go into opts", name)
		}
	}
	e, err := c.runGitAt(ctx, dir, append(args, names...)...)
	if err != nil {
		return nil, err
	}
	return gitAnswer(e)
}

func gitAnswer(e process.Ending) (any, error) {
	if e.Code != 0 {
		return nil, e.Failure("git")
	}
	return strings.TrimRight(e.Stdout, "\n"), nil
}

func (c *Call) runGit(ctx context.Context, args ...string) (process.Ending, error) {
	return c.runGitAt(ctx, c.String("cwd"), args...)
}

// runGitAt runs git as the argument user, who must own the repository.
func (c *Call) runGitAt(ctx context.Context, dir string, args ...string) (process.Ending, error) {
	if which("git") == nil {
		return process.Ending{}, unavailable("program git")
	}
	p := process.Program{Args: append([]string{"git"}, args...), Dir: dir, Env: process.Environ(true), Timeout: toolTimeout}
	for _, param := range c.params {
		if param.Name != "user" || !c.Has("user") {
			continue
		}
		id, err := findIdentity(ctx, c.String("user"), "")
		if err != nil {
			return process.Ending{}, err
		}
		p.Credential, p.Env = id.credential(), id.environ()
	}
	p.Env = append(p.Env, "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=file:git:http:https:ssh")
	e, err := p.Run(ctx)
	if err == nil && e.TimedOut {
		err = errors.New("git did not end in time")
	}
	return e, err
}

func (c *Call) gitLines(ctx context.Context, args ...string) (any, error) {
	text, err := c.gitWith(ctx, args)
	if err != nil {
		return nil, err
	}
	lines := []string{}
	for line := range strings.Lines(text.(string)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines, nil
}

// scope is a command of the settings of a repository, or of the user.
func (c *Call) scope(command string) []string {
	if c.Bool("global") {
		return []string{command, "--global"}
	}
	return []string{command}
}

func gitCheckout(ctx context.Context, c *Call) (any, error) {
	args := []string{"checkout", "-q"}
	if c.Bool("force") {
		args = append(args, "--force")
	}
	return c.gitWith(ctx, args, c.String("rev"))
}

func gitClone(ctx context.Context, c *Call) (any, error) {
	args := []string{"clone", "-q"}
	if c.Has("branch") {
		args = append(args, "--branch="+c.String("branch"))
	}
	if c.Has("depth") {
		args = append(args, "--depth="+strconv.Itoa(c.Int("depth")))
	}
	_, err := c.gitAt(ctx, "/", args, c.String("url"), c.String("cwd"))
	return done(err)
}

func gitLog(ctx context.Context, c *Call) (any, error) {
	text, err := c.gitWith(ctx, []string{"log", "-n", strconv.Itoa(c.Int("count")), "--format=%H%x00%an <%ae>%x00%aI%x00%s", "--end-of-options", c.String("rev")})
	if err != nil {
		return nil, err
	}
	commits := []any{}
	for line := range strings.Lines(text.(string)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\x00"); len(f) == 4 {
			commits = append(commits, map[string]any{"commit": f[0], "author": f[1], "date": f[2], "subject": f[3]})
		}
	}
	return commits, nil
}

func gitRemoteRefs(ctx context.Context, c *Call) (any, error) {
	text, err := c.gitWith(ctx, []string{"ls-remote", "-q"}, append([]string{c.String("remote")}, c.given("ref")...)...)
	if err != nil {
		return nil, err
	}
	refs := map[string]any{}
	for line := range strings.Lines(text.(string)) {
		if hash, name, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			refs[name] = hash
		}
	}
	return refs, nil
}

func (c *Call) remotes(ctx context.Context) (map[string]any, error) {
	text, err := c.gitWith(ctx, []string{"remote", "-v"})
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	for line := range strings.Lines(text.(string)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		one, ok := all[f[0]].(map[string]any)
		if !ok {
			one = map[string]any{}
			all[f[0]] = one
		}
		one[strings.Trim(f[2], "()")] = f[1]
	}
	return all, nil
}

func gitRemoteSet(ctx context.Context, c *Call) (any, error) {
	all, err := c.remotes(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"remote", "add"}
	if _, known := all[c.String("remote")]; known {
		args = []string{"remote", "set-url"}
	}
	if _, err := c.gitWith(ctx, args, c.String("remote"), c.String("url")); err != nil {
		return nil, err
	}
	all, err = c.remotes(ctx)
	return all[c.String("remote")], err
}

func gitStatus(ctx context.Context, c *Call) (any, error) {
	text, err := c.gitWith(ctx, []string{"status", "-z", "--porcelain", "--no-renames"})
	if err != nil {
		return nil, err
	}
	kinds := map[byte]string{'M': "modified", 'A': "new", 'D': "deleted", '?': "untracked", 'U': "unmerged", 'T': "modified"}
	found := map[string][]string{}
	for entry := range strings.SplitSeq(text.(string), "\x00") {
		if len(entry) < 4 {
			continue
		}
		mark := entry[0]
		if mark == ' ' {
			mark = entry[1]
		}
		found[kinds[mark]] = append(found[kinds[mark]], entry[3:])
	}
	status := map[string]any{}
	for kind, paths := range found {
		status[kind] = paths
	}
	return status, nil
}
