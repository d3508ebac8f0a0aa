package module

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
)

var (
	gitCwd   = function.Param{Name: "cwd", Kind: function.Path, Required: true}
	gitOpts  = function.Param{Name: "opts", Kind: function.String, Default: ""}
	gitUser  = function.Param{Name: "user", Kind: function.String}
	gitRev   = function.Param{Name: "rev", Kind: function.String, Default: "HEAD"}
	gitPlace = []function.Param{gitCwd, gitUser}
)

// gitModule works on git repositories.
var gitModule = &function.Module{
	Name: "git",
	Doc:  "Functions that work on git repositories by the program git. opts are further options, as on a command line. git never asks for a password, and uses no transport that runs a program.",
	Functions: []function.Function{
		{
			Name: "add", Doc: "Stage files.", Example: `salt '*' git.add /path/to/repo foo/bar.py`, Params: []function.Param{gitCwd, {Name: "filename", Kind: function.String, Required: true}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return runGitCommand(ctx, c, "add", c.String("filename"))
			},
		},
		{
			Name: "branch", Doc: "Make a branch; with opts, change one.", Example: `salt '*' git.branch /path/to/repo newbranch`, Params: []function.Param{gitCwd, {Name: "name", Kind: function.String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				_, err := runGitCommand(ctx, c, "branch", gitOptions(c, "name")...)
				return done(err)
			},
		},
		{
			Name: "checkout", Doc: "Check out a branch, tag or commit; with force, over local changes.", Example: `salt '*' git.checkout /path/to/repo main`,
			Params: []function.Param{gitCwd, {Name: "rev", Kind: function.String, Required: true}, {Name: "force", Kind: function.Bool, Default: false}, gitOpts, gitUser}, Run: gitCheckout,
		},
		{
			Name: "clone", Doc: "Clone a repository to a path.", Example: `salt '*' git.clone /path/to/repo https://github.com/saltstack/salt.git`,
			Params: []function.Param{gitCwd, {Name: "url", Kind: function.String, Required: true}, {Name: "branch", Kind: function.String}, {Name: "depth", Kind: function.Int}, gitOpts, gitUser}, Run: gitClone,
		},
		{
			Name: "commit", Doc: "Commit what is staged, or a file.", Example: `salt '*' git.commit /path/to/repo 'The commit message'`,
			Params: []function.Param{gitCwd, {Name: "message", Kind: function.String, Required: true}, {Name: "filename", Kind: function.String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return gitWith(ctx, c, []string{"commit", "-m", c.String("message")}, gitOptions(c, "filename")...)
			},
		},
		{
			Name: "config_get", Doc: "Return a setting, None if there is none.", Example: `salt '*' git.config_get user.name cwd=/path/to/repo`,
			Params: []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "cwd", Kind: function.Path, Default: "/"}, gitUser, {Name: "global", Kind: function.Bool, Default: false}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runGit(ctx, c, append(gitScope(c, "config"), "--get", c.String("key"))...)
				if err != nil || e.Code == 1 {
					return nil, err
				}
				return gitAnswer(e)
			},
		},
		{
			Name: "config_set", Doc: "Set a setting and return it.", Example: `salt '*' git.config_set user.email me@example.com cwd=/path/to/repo`,
			Params: []function.Param{{Name: "key", Kind: function.String, Required: true}, {Name: "value", Kind: function.String, Required: true}, {Name: "cwd", Kind: function.Path, Default: "/"}, gitUser, {Name: "global", Kind: function.Bool, Default: false}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runGit(ctx, c, append(gitScope(c, "config"), "--replace-all", "--", c.String("key"), c.String("value"))...)
				if err == nil {
					_, err = gitAnswer(e)
				}
				return []string{c.String("value")}, err
			},
		},
		{
			Name: "current_branch", Doc: "Return the branch that is checked out, an empty text for none.", Example: `salt '*' git.current_branch /path/to/repo`, Params: gitPlace,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return gitWith(ctx, c, []string{"branch", "--show-current"})
			},
		},
		{
			Name: "describe", Doc: "Return the name that a commit has by the tags before it, or the start of its hash.", Example: `salt '*' git.describe /path/to/repo`, Params: []function.Param{gitCwd, gitRev, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return gitWith(ctx, c, []string{"describe", "--always", "--end-of-options", c.String("rev")})
			},
		},
		{
			Name: "diff", Doc: "Return what has changed between two commits, or since one.", Example: `salt '*' git.diff /path/to/repo HEAD~1 HEAD`,
			Params: []function.Param{gitCwd, {Name: "item1", Kind: function.String}, {Name: "item2", Kind: function.String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return gitWith(ctx, c, slices.Concat([]string{"diff", "--end-of-options"}, gitOptions(c, "item1"), gitOptions(c, "item2")))
			},
		},
		{
			Name: "fetch", Doc: "Fetch from a remote.", Example: `salt '*' git.fetch /path/to/repo remote=upstream`, Params: []function.Param{gitCwd, {Name: "remote", Kind: function.String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return runGitCommand(ctx, c, "fetch", gitOptions(c, "remote")...)
			},
		},
		{
			Name: "init", Doc: "Make a repository.", Example: `salt '*' git.init /path/to/repo`, Params: []function.Param{gitCwd, {Name: "bare", Kind: function.Bool, Default: false}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"init", "-q"}
				if c.Bool("bare") {
					args = append(args, "--bare")
				}
				return gitAt(ctx, c, "/", args, c.String("cwd"))
			},
		},
		{
			Name: "is_worktree", Doc: "Return whether a path is within a work tree.", Example: `salt '*' git.is_worktree /path/to/repo`, Params: gitPlace,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runGit(ctx, c, "rev-parse", "--is-inside-work-tree")
				return strings.TrimSpace(e.Stdout) == "true", err
			},
		},
		{
			Name: "list_branches", Doc: "Return the branches; with remote, those of remotes.", Example: `salt '*' git.list_branches /path/to/repo`, Params: []function.Param{gitCwd, {Name: "remote", Kind: function.Bool, Default: false}, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				space := "refs/heads"
				if c.Bool("remote") {
					space = "refs/remotes"
				}
				return gitLines(ctx, c, "for-each-ref", "--format=%(refname:short)", space)
			},
		},
		{
			Name: "list_tags", Doc: "Return the tags.", Example: `salt '*' git.list_tags /path/to/repo`, Params: gitPlace,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return gitLines(ctx, c, "for-each-ref", "--format=%(refname:short)", "refs/tags")
			},
		},
		{
			Name: "log", Doc: "Return the last commits: hash, author, date and subject of each.", Example: `salt '*' git.log /path/to/repo count=3`, Params: []function.Param{gitCwd, gitRev, {Name: "count", Kind: function.Int, Default: 10}, gitUser}, Run: gitLog,
		},
		{
			Name: "ls_remote", Doc: "Return what a remote has: hashes by name.", Example: `salt '*' git.ls_remote remote=https://example.com/repo.git`,
			Params: []function.Param{{Name: "cwd", Kind: function.Path, Default: "/"}, {Name: "remote", Kind: function.String, Default: "origin"}, {Name: "ref", Kind: function.String}, gitUser}, Run: gitRemoteRefs,
		},
		{
			Name: "merge", Doc: "Merge a branch or commit.", Example: `salt '*' git.merge /path/to/repo upstream/main`, Params: []function.Param{gitCwd, {Name: "rev", Kind: function.String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return runGitCommand(ctx, c, "merge", gitOptions(c, "rev")...)
			},
		},
		{
			Name: "pull", Doc: "Fetch from a remote and merge.", Example: `salt '*' git.pull /path/to/repo opts='--rebase origin main'`, Params: []function.Param{gitCwd, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) { return runGitCommand(ctx, c, "pull") },
		},
		{
			Name: "push", Doc: "Push a branch to a remote.", Example: `salt '*' git.push /path/to/repo origin main`,
			Params: []function.Param{gitCwd, {Name: "remote", Kind: function.String, Required: true}, {Name: "ref", Kind: function.String, Required: true}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return runGitCommand(ctx, c, "push", c.String("remote"), c.String("ref"))
			},
		},
		{
			Name: "remote_get", Doc: "Return the addresses of a remote.", Example: `salt '*' git.remote_get /path/to/repo origin`, Params: []function.Param{gitCwd, {Name: "remote", Kind: function.String, Default: "origin"}, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				all, err := gitRemotes(ctx, c)
				one, ok := all[c.String("remote")]
				if err == nil && !ok {
					err = errors.New("there is no remote " + c.String("remote"))
				}
				return one, err
			},
		},
		{
			Name: "remote_set", Doc: "Set the address of a remote.", Example: `salt '*' git.remote_set /path/to/repo git@example.com:me/repo.git remote=upstream`,
			Params: []function.Param{gitCwd, {Name: "url", Kind: function.String, Required: true}, {Name: "remote", Kind: function.String, Default: "origin"}, gitUser}, Run: gitRemoteSet,
		},
		{
			Name: "remotes", Doc: "Return the remotes, with the addresses for fetch and push.", Example: `salt '*' git.remotes /path/to/repo`, Params: gitPlace,
			Run: func(ctx context.Context, c *function.Call) (any, error) { return gitRemotes(ctx, c) },
		},
		{
			Name: "reset", Doc: "Reset the work tree, as opts say.", Example: `salt '*' git.reset /path/to/repo opts='--hard origin/main'`, Params: []function.Param{gitCwd, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) { return runGitCommand(ctx, c, "reset") },
		},
		{
			Name: "rev_parse", Doc: "Return the hash that a name stands for.", Example: `salt '*' git.rev_parse /path/to/repo HEAD`, Params: []function.Param{gitCwd, gitRev, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return gitWith(ctx, c, []string{"rev-parse", "--verify", "--end-of-options", c.String("rev")})
			},
		},
		{
			Name: "revision", Doc: "Return the hash of a commit; with short, its start.", Example: `salt '*' git.revision /path/to/repo main short=True`, Params: []function.Param{gitCwd, gitRev, {Name: "short", Kind: function.Bool, Default: false}, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"rev-parse", "--verify"}
				if c.Bool("short") {
					args = append(args, "--short")
				}
				return gitWith(ctx, c, append(args, "--end-of-options", c.String("rev")))
			},
		},
		{
			Name: "rm", Doc: "Remove files from the repository and the work tree.", Example: `salt '*' git.rm /path/to/repo foo/bar.py`, Params: []function.Param{gitCwd, {Name: "filename", Kind: function.String, Required: true}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return runGitCommand(ctx, c, "rm", c.String("filename"))
			},
		},
		{
			Name: "status", Doc: "Return what has changed in the work tree: lists of paths by kind.", Example: `salt '*' git.status /path/to/repo`, Params: gitPlace, Run: gitStatus,
		},
		{
			Name: "tag", Doc: "Make a tag.", Example: `salt '*' git.tag /path/to/repo v1.0`, Params: []function.Param{gitCwd, {Name: "name", Kind: function.String, Required: true}, {Name: "ref", Kind: function.String, Default: "HEAD"}, {Name: "message", Kind: function.String}, gitOpts, gitUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"tag"}
				if c.Has("message") {
					args = append(args, "-a", "-m", c.String("message"))
				}
				return gitWith(ctx, c, args, c.String("name"), c.String("ref"))
			},
		},
		{
			Name: "version", Doc: "Return the version of git.", Example: `salt '*' git.version`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				text, err := output(ctx, "git", "--version")
				return strings.TrimPrefix(strings.TrimSpace(text), "git version "), err
			},
		},
	},
}

// gitOptions returns the argument name as a list, empty if it has no value.
func gitOptions(c *function.Call, name string) []string {
	if c.String(name) == "" {
		return nil
	}
	return []string{c.String(name)}
}

// runGitCommand runs a command with the argument opts and returns its output.
func runGitCommand(ctx context.Context, c *function.Call, command string, names ...string) (any, error) {
	return gitWith(ctx, c, []string{command}, names...)
}

// gitWith runs a command with its own options; names are never options.
func gitWith(ctx context.Context, c *function.Call, args []string, names ...string) (any, error) {
	return gitAt(ctx, c, c.String("cwd"), args, names...)
}

func gitAt(ctx context.Context, c *function.Call, dir string, args []string, names ...string) (any, error) {
	for _, p := range c.Params() {
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
			return nil, function.Invalid("%q begins with a hyphen: options go into opts", name)
		}
	}
	e, err := runGitAt(ctx, c, dir, append(args, names...)...)
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

func runGit(ctx context.Context, c *function.Call, args ...string) (process.Ending, error) {
	return runGitAt(ctx, c, c.String("cwd"), args...)
}

// runGitAt runs git as the argument user, who must own the repository.
func runGitAt(ctx context.Context, c *function.Call, dir string, args ...string) (process.Ending, error) {
	if which("git") == nil {
		return process.Ending{}, function.Unavailable("program git")
	}
	if info, err := os.Stat(dir); dir != "" && (err != nil || !info.IsDir()) {
		return process.Ending{}, function.Invalid("there is no directory %s", dir) // otherwise the error would be about git
	}
	p := process.Program{Args: append([]string{"git"}, args...), Dir: dir, Env: process.Environ(true), Timeout: toolTimeout}
	for _, param := range c.Params() {
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

func gitLines(ctx context.Context, c *function.Call, args ...string) (any, error) {
	text, err := gitWith(ctx, c, args)
	if err != nil {
		return nil, err
	}
	lines := []string{}
	for line := range strings.Lines(text.(string)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines, nil
}

// gitScope returns the command for the settings of a repository, or of the user.
func gitScope(c *function.Call, command string) []string {
	if c.Bool("global") {
		return []string{command, "--global"}
	}
	return []string{command}
}

func gitCheckout(ctx context.Context, c *function.Call) (any, error) {
	args := []string{"checkout", "-q"}
	if c.Bool("force") {
		args = append(args, "--force")
	}
	return gitWith(ctx, c, args, c.String("rev"))
}

func gitClone(ctx context.Context, c *function.Call) (any, error) {
	args := []string{"clone", "-q"}
	if c.Has("branch") {
		args = append(args, "--branch="+c.String("branch"))
	}
	if c.Has("depth") {
		args = append(args, "--depth="+strconv.Itoa(c.Int("depth")))
	}
	_, err := gitAt(ctx, c, "/", args, c.String("url"), c.String("cwd"))
	return done(err)
}

func gitLog(ctx context.Context, c *function.Call) (any, error) {
	text, err := gitWith(ctx, c, []string{"log", "-n", strconv.Itoa(c.Int("count")), "--format=%H%x00%an <%ae>%x00%aI%x00%s", "--end-of-options", c.String("rev")})
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

func gitRemoteRefs(ctx context.Context, c *function.Call) (any, error) {
	text, err := gitWith(ctx, c, []string{"ls-remote", "-q"}, append([]string{c.String("remote")}, gitOptions(c, "ref")...)...)
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

func gitRemotes(ctx context.Context, c *function.Call) (map[string]any, error) {
	text, err := gitWith(ctx, c, []string{"remote", "-v"})
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

func gitRemoteSet(ctx context.Context, c *function.Call) (any, error) {
	all, err := gitRemotes(ctx, c)
	if err != nil {
		return nil, err
	}
	args := []string{"remote", "add"}
	if _, known := all[c.String("remote")]; known {
		args = []string{"remote", "set-url"}
	}
	if _, err := gitWith(ctx, c, args, c.String("remote"), c.String("url")); err != nil {
		return nil, err
	}
	all, err = gitRemotes(ctx, c)
	return all[c.String("remote")], err
}

func gitStatus(ctx context.Context, c *function.Call) (any, error) {
	text, err := gitWith(ctx, c, []string{"status", "-z", "--porcelain", "--no-renames"})
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
