package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

var (
	filePath   = function.Param{Name: "path", Kind: function.Path, Required: true}
	fileSource = function.Param{Name: "src", Kind: function.Path, Required: true}
	fileTarget = function.Param{Name: "dst", Kind: function.Path, Required: true}
	fileFollow = function.Param{Name: "follow_symlinks", Kind: function.Bool, Default: true}
)

// fileModule reads and changes files of the minion.
var fileModule = &function.Module{
	Name: "file",
	Doc:  "Functions that read and change files and directories of the minion. Paths are absolute, or begin with ~ for the home of the minion's user.",
	Functions: []function.Function{
		{
			Name:    "access",
			Doc:     "Return whether the minion may access a path: mode f asks whether it exists, r, w and x whether it may read, write and execute it.",
			Example: `salt '*' file.access /path/to/file r`,
			Params:  []function.Param{filePath, {Name: "mode", Kind: function.String, Required: true}},
			Run:     fileAccess,
		},
		{
			Name:    "append",
			Doc:     "Append lines to a file, which is created if it is not there.",
			Example: `salt '*' file.append /etc/motd 'With all thine offerings' 'thou shalt offer salt.'`,
			Params:  []function.Param{filePath}, Varargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return writeLines(c, func(old, lines string) string {
					if old != "" && !strings.HasSuffix(old, "\n") {
						old += "\n"
					}
					return old + lines
				}, "appended")
			},
		},
		{
			Name:    "basename",
			Doc:     "Return the last part of a path.",
			Example: `salt '*' file.basename /etc/hosts`,
			Params:  []function.Param{{Name: "path", Kind: function.String, Required: true}},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return filepath.Base(c.String("path")), nil },
		},
		{
			Name:    "blockreplace",
			Doc:     "Replace what stands between two lines of a file. Return the changes as a unified diff, or with show_changes=False whether there are any.",
			Example: `salt '*' file.blockreplace /etc/hosts '# begin' '# end' '10.0.1.1 foo.foobar'`,
			Params:  []function.Param{filePath, {Name: "marker_start", Kind: function.String, Default: "#-- start managed zone --"}, {Name: "marker_end", Kind: function.String, Default: "#-- end managed zone --"}, {Name: "content", Kind: function.String, Default: ""}, appendNew, prependNew, fileBackup, editDryRun, showDiff, {Name: "append_newline", Kind: function.Bool, Default: false}},
			Run:     fileBlockReplace,
		},
		{
			Name:    "check_hash",
			Doc:     "Return whether a file has that digest, written as hex digits, after its type and = or : if it is not sha256.",
			Example: `salt '*' file.check_hash /etc/fstab md5=d41d8cd98f00b204e9800998ecf8427e`,
			Params:  []function.Param{filePath, {Name: "file_hash", Kind: function.String, Required: true}},
			Run:     fileCheckHash,
		},
		{
			Name:    "check_perms",
			Doc:     "Set the owner, group and mode of a file where they differ, and return what was changed and what they were. ret is not used.",
			Example: `salt '*' file.check_perms /etc/sudoers '{}' root root 400`,
			Params:  []function.Param{{Name: "name", Kind: function.Path, Required: true}, {Name: "ret"}, {Name: "user", Kind: function.String}, {Name: "group", Kind: function.String}, {Name: "mode"}},
			Run:     fileCheckPerms,
		},
		{
			Name:    "chgrp",
			Doc:     "Set the group of a file.",
			Example: `salt '*' file.chgrp /etc/passwd root`,
			Params:  []function.Param{filePath, {Name: "group", Kind: function.String, Required: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return chown(ctx, c, "", c.String("group"), os.Chown)
			},
		},
		{
			Name:    "chown",
			Doc:     "Set the owner and group of a file; an empty text leaves either.",
			Example: `salt '*' file.chown /etc/passwd root root`,
			Params:  []function.Param{filePath, {Name: "user", Kind: function.String, Required: true}, {Name: "group", Kind: function.String, Required: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return chown(ctx, c, c.String("user"), c.String("group"), os.Chown)
			},
		},
		{
			Name:    "comment",
			Doc:     "Put a mark before each line of a file that matches a regular expression. Return the changes, False if no line matches.",
			Example: `salt '*' file.comment /etc/modules pcspkr`,
			Params:  []function.Param{filePath, {Name: "regex", Kind: function.String, Required: true}, {Name: "char", Kind: function.String, Default: "#"}, fileBackup, showDiff},
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return fileComment(ctx, c, true) },
		},
		{
			Name:    "contains",
			Doc:     "Return whether a file contains the text.",
			Example: `salt '*' file.contains /etc/crontab mymaintenance.sh`,
			Params:  []function.Param{filePath, {Name: "text", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				text, err := readText(c.String("path"))
				return strings.Contains(text, c.String("text")), err
			},
		},
		{
			Name:    "copy",
			Doc:     "Copy a file, or with recurse a directory. remove_existing removes the target first.",
			Example: `salt '*' file.copy /path/to/src /path/to/dst`,
			Params: []function.Param{fileSource, fileTarget,
				{Name: "recurse", Kind: function.Bool, Default: false}, {Name: "remove_existing", Kind: function.Bool, Default: false}},
			Run: fileCopy,
		},
		{
			Name:    "directory_exists",
			Doc:     "Return whether the path is a directory.",
			Example: `salt '*' file.directory_exists /etc`,
			Params:  []function.Param{filePath},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				info, err := os.Stat(c.String("path"))
				return err == nil && info.IsDir(), nil
			},
		},
		{
			Name:    "dirname",
			Doc:     "Return a path without its last part.",
			Example: `salt '*' file.dirname /etc/hosts`,
			Params:  []function.Param{{Name: "path", Kind: function.String, Required: true}},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return filepath.Dir(c.String("path")), nil },
		},
		{
			Name:    "diskusage",
			Doc:     "Return the size of a file, or of all files below a directory, in bytes.",
			Example: `salt '*' file.diskusage /var/log`,
			Params:  []function.Param{filePath},
			Run:     fileDiskusage,
		},
		{
			Name:    "file_exists",
			Doc:     "Return whether the path is a file.",
			Example: `salt '*' file.file_exists /etc/passwd`,
			Params:  []function.Param{filePath},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				info, err := os.Stat(c.String("path"))
				return err == nil && info.Mode().IsRegular(), nil
			},
		},
		{
			Name:    "find",
			Doc:     "Return the paths below a directory whose name matches a glob, or a regular expression with regex. type selects files (f), directories (d) and links (l); maxdepth limits the depth; size is 10k, +1m, -2g or 1m-10m, mtime an age: 2d for older, -1h for newer. exec is a command that is run for each, without a shell, with the path for {}: then what it is and what it writes is returned.",
			Example: "salt '*' file.find /var/log name='*.log' type=f maxdepth=2\nsalt '*' file.find /var/log mtime=30d type=f exec='gzip {}'",
			Params: []function.Param{filePath,
				{Name: "name", Kind: function.String}, {Name: "regex", Kind: function.String}, {Name: "type", Kind: function.String}, {Name: "maxdepth", Kind: function.Int},
				{Name: "size", Kind: function.String, Default: ""}, {Name: "mtime", Kind: function.String, Default: ""}, {Name: "exec", Kind: function.String}},
			Calls: &function.Calls{Read: foundExec, Run: fileFind},
		},
		{
			Name:    "get_gid",
			Doc:     "Return the number of the group of a file.",
			Example: `salt '*' file.get_gid /etc/passwd`,
			Params:  []function.Param{filePath, fileFollow},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return fileStat(c, "gid") },
		},
		{
			Name:    "get_group",
			Doc:     "Return the group of a file.",
			Example: `salt '*' file.get_group /etc/passwd`,
			Params:  []function.Param{filePath, fileFollow},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return fileStat(c, "group") },
		},
		{
			Name:    "get_hash",
			Doc:     "Return the digest of a file in hex digits.",
			Example: `salt '*' file.get_hash /etc/shadow`,
			Params:  []function.Param{filePath, {Name: "form", Kind: function.String, Default: "sha256"}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return hashFile(ctx, c.String("path"), c.String("form"))
			},
		},
		{
			Name:    "get_mode",
			Doc:     "Return the mode of a file as octal digits.",
			Example: `salt '*' file.get_mode /etc/passwd`,
			Params:  []function.Param{filePath, fileFollow},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return fileStat(c, "mode") },
		},
		{
			Name:    "get_uid",
			Doc:     "Return the number of the owner of a file.",
			Example: `salt '*' file.get_uid /etc/passwd`,
			Params:  []function.Param{filePath, fileFollow},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return fileStat(c, "uid") },
		},
		{
			Name:    "get_user",
			Doc:     "Return the owner of a file.",
			Example: `salt '*' file.get_user /etc/passwd`,
			Params:  []function.Param{filePath, fileFollow},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return fileStat(c, "user") },
		},
		{
			Name:    "grep",
			Doc:     "Run grep on a file, with further options, and return code and output.",
			Example: `salt '*' file.grep /etc/passwd nobody -- -i`,
			Params:  []function.Param{filePath, {Name: "pattern", Kind: function.String, Required: true}}, Varargs: true,
			Run: fileGrep,
		},
		{
			Name:    "is_link",
			Doc:     "Return whether the path is a symbolic link.",
			Example: `salt '*' file.is_link /path/to/link`,
			Params:  []function.Param{filePath},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				info, err := os.Lstat(c.String("path"))
				return err == nil && info.Mode()&fs.ModeSymlink != 0, nil
			},
		},
		{
			Name:    "join",
			Doc:     "Return the parts joined to one path.",
			Example: `salt '*' file.join / usr local bin`,
			Varargs: true,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return path.Join(c.VarWords()...), nil },
		},
		{
			Name:    "lchown",
			Doc:     "Set the owner and group of a file, of a link itself; an empty text leaves either.",
			Example: `salt '*' file.lchown /path/to/link root root`,
			Params:  []function.Param{filePath, {Name: "user", Kind: function.String, Required: true}, {Name: "group", Kind: function.String, Required: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return chown(ctx, c, c.String("user"), c.String("group"), os.Lchown)
			},
		},
		{
			Name:    "line",
			Doc:     "Edit one line of a file. mode is ensure (there once, between before and after), replace (lines that match), delete or insert (at location start or end, or beside before or after, which match one line each).",
			Example: `salt '*' file.line /etc/nsswitch.conf 'networks: files dns' after='hosts:.*' mode=ensure`,
			Params:  []function.Param{filePath, {Name: "content", Kind: function.String, Default: ""}, {Name: "match", Kind: function.String, Default: ""}, {Name: "mode", Kind: function.String, Default: ""}, {Name: "location", Kind: function.String, Default: ""}, {Name: "before", Kind: function.String, Default: ""}, {Name: "after", Kind: function.String, Default: ""}, showDiff, {Name: "backup", Default: false}, {Name: "indent", Kind: function.Bool, Default: true}},
			Run:     fileLine,
		},
		{
			Name:    "link",
			Doc:     "Make path a hard link to the file src.",
			Example: `salt '*' file.link /path/to/file /path/to/link`,
			Params:  []function.Param{fileSource, filePath},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return done(os.Link(c.String("src"), c.String("path")))
			},
		},
		{
			Name:    "lstat",
			Doc:     "Return times, owner, mode and size of a file, of a link itself, with Python's names.",
			Example: `salt '*' file.lstat /path/to/link`,
			Params:  []function.Param{filePath},
			Run:     fileLstat,
		},
		{
			Name:    "makedirs",
			Doc:     "Make a directory and its missing parents.",
			Example: `salt '*' file.makedirs /opt/code/`,
			Params:  []function.Param{{Name: "name", Kind: function.Path, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return done(os.MkdirAll(c.String("name"), 0o755))
			},
		},
		{
			Name: "manage_file",
			Doc: "Do what file.managed does, with the arguments in the order of Salt's function of that name; sfn is a file of the minion that is the source, ret is ignored. " +
				"The source must have the digest of source_sum, a dictionary of hash_type and hsum. attrs and backup are refused.",
			Example: "salt '*' file.manage_file /etc/httpd.conf '' '{}' salt://httpd.conf '{hash_type: sha256, hsum: ...}' root root '755' '' base ''",
			Params:  manageParams,
			Run:     fileManageFile,
		},
		{
			Name: "managed",
			Doc: "Make a file have the content of source, a file of the master or of the web, or of contents, and an owner and a mode. With template=jinja the content is a template, " +
				"which sees the grains and the pillar of the minion and the names of context. What is as it should be is not changed. Return what has changed; with test, what would.",
			Example: "salt '*' file.managed /etc/motd source=salt://motd template=jinja\nsalt '*' file.managed /etc/issue contents='Hello' mode=0644 test=True",
			Params:  managedParams,
			Run:     fileManaged,
		},
		{
			Name:    "mkdir",
			Doc:     "Make a directory and its missing parents. Owner and mode are set if the directory is new.",
			Example: `salt '*' file.mkdir /opt/jetty/context mode=0750`,
			Params:  []function.Param{{Name: "dir_path", Kind: function.Path, Required: true}, {Name: "user", Kind: function.String}, {Name: "group", Kind: function.String}, {Name: "mode"}},
			Run:     fileMkdir,
		},
		{
			Name:    "path_exists_glob",
			Doc:     "Return whether the glob matches any path.",
			Example: `salt '*' file.path_exists_glob '/etc/pass*'`,
			Params:  []function.Param{filePath},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				found, err := filepath.Glob(c.String("path"))
				return len(found) > 0, err
			},
		},
		{
			Name:    "prepend",
			Doc:     "Write lines before those of a file, which is created if it is not there.",
			Example: `salt '*' file.prepend /etc/motd 'With all thine offerings' 'thou shalt offer salt.'`,
			Params:  []function.Param{filePath}, Varargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return writeLines(c, func(old, lines string) string { return lines + old }, "prepended")
			},
		},
		{
			Name:    "read",
			Doc:     "Return the content of a file, byte for byte.",
			Example: `salt '*' file.read /path/to/file`,
			Params:  []function.Param{filePath},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return readText(c.String("path")) },
		},
		{
			Name:    "readdir",
			Doc:     "Return the names in a directory, . and .. among them.",
			Example: `salt '*' file.readdir /path/to/dir`,
			Params:  []function.Param{filePath},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				entries, err := os.ReadDir(c.String("path"))
				names := []string{".", ".."}
				for _, e := range entries {
					names = append(names, e.Name())
				}
				return names, err
			},
		},
		{
			Name:    "readlink",
			Doc:     "Return where a symbolic link points; with canonicalize, the path that it leads to in the end.",
			Example: `salt '*' file.readlink /path/to/link`,
			Params:  []function.Param{filePath, {Name: "canonicalize", Kind: function.Bool, Default: false}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if c.Bool("canonicalize") {
					return filepath.EvalSymlinks(c.String("path"))
				}
				return os.Readlink(c.String("path"))
			},
		},
		{
			Name:    "remove",
			Doc:     "Remove a file, or a directory with everything in it. The root directory is refused.",
			Example: `salt '*' file.remove /tmp/foo`,
			Params:  []function.Param{filePath},
			Run:     fileRemove,
		},
		{
			Name:    "rename",
			Doc:     "Rename a file or directory.",
			Example: `salt '*' file.rename /path/to/src /path/to/dst`,
			Params:  []function.Param{fileSource, fileTarget},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return done(os.Rename(c.String("src"), c.String("dst")))
			},
		},
		{
			Name:    "replace",
			Doc:     "Replace what matches a regular expression in a file; groups are \\1 or \\g<name>, flags names of Python's re. Return the changes as a unified diff, or with show_changes=False whether there are any.",
			Example: `salt '*' file.replace /etc/httpd/httpd.conf pattern='LogLevel warn' repl='LogLevel info'`,
			Params:  []function.Param{filePath, {Name: "pattern", Kind: function.String, Required: true}, {Name: "repl", Kind: function.String, Required: true}, {Name: "count", Kind: function.Int, Default: 0}, {Name: "flags", Default: int64(8)}, appendNew, prependNew, {Name: "not_found_content", Kind: function.String}, fileBackup, editDryRun, {Name: "search_only", Kind: function.Bool, Default: false}, showDiff, {Name: "ignore_if_missing", Kind: function.Bool, Default: false}, {Name: "backslash_literal", Kind: function.Bool, Default: false}},
			Run:     fileReplace,
		},
		{
			Name:    "rmdir",
			Doc:     "Remove an empty directory.",
			Example: `salt '*' file.rmdir /tmp/foo/`,
			Params:  []function.Param{filePath},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				info, err := os.Lstat(c.String("path"))
				if err == nil && !info.IsDir() {
					return nil, function.Invalid("%s is not a directory", c.String("path"))
				}
				return done(errors.Join(err, os.Remove(c.String("path"))))
			},
		},
		{
			Name:    "search",
			Doc:     "Return whether a line of a file matches the regular expression. With ignore_if_missing a missing file has none.",
			Example: `salt '*' file.search /etc/crontab 'mymaintenance.sh'`,
			Params:  []function.Param{filePath, {Name: "pattern", Kind: function.String, Required: true}, {Name: "ignore_if_missing", Kind: function.Bool, Default: false}},
			Run:     fileSearch,
		},
		{
			Name:    "sed",
			Doc:     "Replace what matches a regular expression in a file, with sed(1), in lines that match limit. Return whether anything was changed. Scripts can neither run programs nor write other files.",
			Example: `salt '*' file.sed /etc/httpd/httpd.conf 'LogLevel warn' 'LogLevel info'`,
			Params:  []function.Param{filePath, {Name: "before", Kind: function.String, Required: true}, {Name: "after", Kind: function.String, Required: true}, {Name: "limit", Kind: function.String, Default: ""}, fileBackup, {Name: "flags", Kind: function.String, Default: "g"}, {Name: "negate_match", Kind: function.Bool, Default: false}},
			Run:     fileSed,
		},
		{
			Name:    "set_mode",
			Doc:     "Set the mode of a file, in octal digits, and return it.",
			Example: `salt '*' file.set_mode /etc/passwd 0644`,
			Params:  []function.Param{filePath, {Name: "mode", Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				mode, err := fileMode(c.Any("mode"))
				if err != nil {
					return nil, err
				}
				if err := os.Chmod(c.String("path"), mode); err != nil {
					return nil, err
				}
				return octal(mode), nil
			},
		},
		{
			Name:    "stats",
			Doc:     "Return type, size, mode, owner, times and more of a file; with hash_type also its digest.",
			Example: `salt '*' file.stats /etc/passwd`,
			Params:  []function.Param{filePath, {Name: "hash_type", Kind: function.String}, fileFollow},
			Run:     fileStats,
		},
		{
			Name:    "symlink",
			Doc:     "Make path a symbolic link to src. With force, an existing file or link there is replaced.",
			Example: `salt '*' file.symlink /path/to/file /path/to/link`,
			Params:  []function.Param{fileSource, filePath, {Name: "force", Kind: function.Bool, Default: false}},
			Run:     fileSymlink,
		},
		{
			Name:    "touch",
			Doc:     "Set the times of a file, in seconds since 1970, to the given ones or to now. It is created if it is not there.",
			Example: `salt '*' file.touch /var/log/emptyfile`,
			Params:  []function.Param{{Name: "name", Kind: function.Path, Required: true}, {Name: "atime", Kind: function.Float}, {Name: "mtime", Kind: function.Float}},
			Run:     fileTouch,
		},
		{
			Name:    "truncate",
			Doc:     "Cut a file to a length in bytes, or extend it to that length with zero bytes.",
			Example: `salt '*' file.truncate /path/to/file 512`,
			Params:  []function.Param{filePath, {Name: "length", Kind: function.Int, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return done(os.Truncate(c.String("path"), int64(c.Int("length"))))
			},
		},
		{
			Name:    "uncomment",
			Doc:     "Remove the comment mark from each line of a file that matches a regular expression after it. Return the changes, False if no line matches.",
			Example: `salt '*' file.uncomment /etc/hosts.deny 'ALL: PARANOID'`,
			Params:  []function.Param{filePath, {Name: "regex", Kind: function.String, Required: true}, {Name: "char", Kind: function.String, Default: "#"}, fileBackup, showDiff},
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return fileComment(ctx, c, false) },
		},
		{
			Name:    "write",
			Doc:     "Write lines as the whole content of a file.",
			Example: `salt '*' file.write /etc/motd 'With all thine offerings' 'thou shalt offer salt.'`,
			Params:  []function.Param{filePath}, Varargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return writeLines(c, func(_, lines string) string { return lines }, "wrote")
			},
		},
	},
}

// done is the return of a function that returns True unless it fails.
func done(err error) (any, error) { return err == nil, err }

// maxFile limits what is read of a file: it is sent in one return.
const maxFile = process.MaxOutput

func readText(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > maxFile {
		return "", fmt.Errorf("%s has %d bytes, the limit is %d", path, info.Size(), maxFile)
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

func fileAccess(_ context.Context, c *function.Call) (any, error) {
	modes := map[string]uint32{"f": 0, "r": 4, "w": 2, "x": 1}
	mode, ok := modes[c.String("mode")]
	if !ok {
		return nil, function.Invalid("the mode is f, r, w or x, not %q", c.String("mode"))
	}
	return mayAccess(c.String("path"), mode), nil
}

// writeLines rewrites the file of the argument path; combine gets its old content and the lines in
// the further arguments. Its mode and owner stay.
func writeLines(c *function.Call, combine func(old, lines string) string, verb string) (any, error) {
	file := c.String("path")
	lines, err := fileLines(c)
	if err != nil {
		return nil, err
	}
	old, err := readText(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text := strings.Join(lines, "\n")
	if len(lines) > 0 {
		text += "\n"
	}
	if err := os.WriteFile(file, []byte(combine(old, text)), 0o644); err != nil {
		return nil, err
	}
	return fmt.Sprintf("%s %s to %q", strings.ToUpper(verb[:1])+verb[1:], salt.Count(len(lines), "line"), file), nil
}

// fileLines returns the further arguments as texts, with lists flattened.
func fileLines(c *function.Call) ([]string, error) {
	var lines []string
	for _, v := range c.Varargs() {
		items, ok := v.([]any)
		if !ok {
			items = []any{v}
		}
		for _, item := range items {
			line, err := function.ToString(item)
			if err != nil {
				return nil, err
			}
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// fileMode parses a mode as people write it: octal digits, as text or as a number without its
// leading zeros, as a command line passes it. So 600, 0600 and '0600' are the same.
func fileMode(v any) (fs.FileMode, error) {
	text, ok := v.(string)
	if n, isNumber := v.(int64); isNumber {
		text, ok = strconv.FormatInt(n, 10), true
	}
	n, err := strconv.ParseUint(text, 8, 12)
	if !ok || err != nil {
		return 0, function.Invalid(`a mode is octal digits, for example 0644, not %s`, repr(v))
	}
	mode := fs.FileMode(n & 0o777)
	for bit, flag := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if n&bit != 0 {
			mode |= flag
		}
	}
	return mode, nil
}

// octal returns a mode as four octal digits.
func octal(mode fs.FileMode) string {
	n := uint32(mode.Perm())
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&flag != 0 {
			n |= bit
		}
	}
	return fmt.Sprintf("%04o", n)
}

func chown(ctx context.Context, c *function.Call, user, group string, chown func(string, int, int) error) (any, error) {
	uid, gid, err := ownerNumbers(ctx, user, group)
	if err != nil {
		return nil, err
	}
	return nil, chown(c.String("path"), uid, gid)
}

// ownerNumbers returns the numbers of a user and a group, -1 for "".
func ownerNumbers(ctx context.Context, user, group string) (uid, gid int, err error) {
	uid, gid = -1, -1
	if user != "" {
		a, err := findAccount(ctx, user)
		if err != nil {
			return 0, 0, err
		}
		uid = a.uid
	}
	if group != "" {
		g, err := findGroup(ctx, group)
		if err != nil {
			return 0, 0, err
		}
		gid = g.gid
	}
	return uid, gid, nil
}

func fileMkdir(ctx context.Context, c *function.Call) (any, error) {
	dir := c.String("dir_path")
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return true, nil
	}
	mode := fs.FileMode(0o755)
	if c.Has("mode") {
		var err error
		if mode, err = fileMode(c.Any("mode")); err != nil {
			return nil, err
		}
	}
	uid, gid, err := ownerNumbers(ctx, c.String("user"), c.String("group"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.Mkdir(dir, 0o700)); err != nil {
		return nil, err
	}
	return done(errors.Join(os.Chown(dir, uid, gid), os.Chmod(dir, mode)))
}

func fileRemove(_ context.Context, c *function.Call) (any, error) {
	file := c.String("path")
	if file == "/" {
		return nil, function.Invalid("the root directory is not removed")
	}
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return done(os.RemoveAll(file))
}

func fileSymlink(_ context.Context, c *function.Call) (any, error) {
	link := c.String("path")
	if old, err := os.Readlink(link); err == nil && old == c.String("src") {
		return true, nil
	}
	if info, err := os.Lstat(link); err == nil && c.Bool("force") && !info.IsDir() {
		if err := os.Remove(link); err != nil {
			return nil, err
		}
	}
	return done(os.Symlink(c.String("src"), link))
}

func fileTouch(_ context.Context, c *function.Call) (any, error) {
	file := c.String("name")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	f.Close()
	when := func(param string) time.Time {
		if !c.Has(param) {
			return time.Now()
		}
		return time.Unix(0, int64(c.Float(param)*1e9))
	}
	return done(os.Chtimes(file, when("atime"), when("mtime")))
}

func fileSearch(_ context.Context, c *function.Call) (any, error) {
	pattern, err := regexp.Compile("(?m)" + c.String("pattern"))
	if err != nil {
		return nil, function.Invalid("%w", err)
	}
	text, err := readText(c.String("path"))
	if errors.Is(err, fs.ErrNotExist) && c.Bool("ignore_if_missing") {
		return false, nil
	}
	return pattern.MatchString(text), err
}

// foundExec reads the command of file.find: it needs the same permission as cmd.run with that text.
func foundExec(a *function.Arguments) function.Reading {
	if !a.Has("exec") {
		return function.Reading{}
	}
	return function.Reading{Inner: []function.Inner{{Command: salt.Command{Function: "cmd.run", Args: []any{a.String("exec")}}}}}
}

// fileFind skips what the minion may not read.
func fileFind(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	if err := r.Known(ctx); err != nil {
		return nil, err // a minion without cmd.run does not run this either
	}
	var command []string
	if c.Has("exec") {
		var err error
		if command, err = splitCommand(c.String("exec")); err != nil || len(command) == 0 {
			return nil, function.Invalid("exec=%q is not a command", c.String("exec"))
		}
	}
	found, err := findFiles(ctx, c)
	if err != nil || command == nil {
		return found, err
	}
	return execFound(ctx, c, command, found)
}

// execFound runs the command for each path; the path is one word wherever it is used: no shell
// reads a file name, and an absolute path is not an option.
func execFound(ctx context.Context, c *function.Call, command, found []string) (any, error) {
	output := []string{}
	for _, path := range found {
		args := slices.Clone(command)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "{}", path)
		}
		e, err := tool(ctx, args...)
		if err != nil {
			return nil, err
		}
		if e.Code != 0 {
			c.SetRetcode(1)
		}
		output = append(output, strings.Join(args, " ")+":\n"+e.Stdout+e.Stderr)
	}
	return output, nil
}

// findFiles returns the paths that the arguments select.
func findFiles(ctx context.Context, c *function.Call) ([]string, error) {
	root := c.String("path")
	wanted, err := findCriteria(c)
	if err != nil {
		return nil, err
	}
	found := []string{}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil && p == root || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if err == nil && wanted(d) {
			found = append(found, p)
		}
		if err == nil && d.IsDir() && c.Has("maxdepth") && depth(root, p) >= c.Int("maxdepth") {
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// depth counts the parts of p below root.
func depth(root, p string) int {
	rest := strings.Trim(strings.TrimPrefix(p, root), "/")
	if rest == "" {
		return 0
	}
	return strings.Count(rest, "/") + 1
}

// findCriteria returns the filter of file.find.
func findCriteria(c *function.Call) (func(fs.DirEntry) bool, error) {
	pattern, err := regexp.Compile(c.String("regex"))
	if err != nil {
		return nil, function.Invalid("%w", err)
	}
	kinds := strings.Split(c.String("type"), "")
	if strings.Trim(c.String("type"), "fdl") != "" {
		return nil, function.Invalid("the type is made of f, d and l, not %q", c.String("type"))
	}
	rest, err := findFacts(c)
	if err != nil {
		return nil, err
	}
	return func(d fs.DirEntry) bool {
		return (!c.Has("name") || fnmatch.Match(c.String("name"), d.Name())) &&
			pattern.MatchString(d.Name()) &&
			(len(kinds) == 0 || slices.Contains(kinds, kindLetter(d.Type()))) &&
			rest(d)
	}, nil
}

func kindLetter(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "f"
	case mode.IsDir():
		return "d"
	case mode&fs.ModeSymlink != 0:
		return "l"
	}
	return ""
}
