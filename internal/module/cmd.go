package module

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/value"
)

// cmdModule runs programs.
var cmdModule = &function.Module{
	Name: "cmd",
	Doc: "Functions that run programs. Text is run by a shell, a list as the program and its arguments. " +
		"A program runs in its own process group, which is killed as a whole with its job. " +
		"With runas it gets a fresh environment of that user, not the minion's.",
	Functions: []function.Function{
		{
			Name:    "exec_code",
			Doc:     "Run code with the given interpreter and return what it wrote to stdout and stderr.",
			Example: `salt '*' cmd.exec_code python3 'import sys; sys.stdout.write("hello")'`,
			Params:  codeParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runCode(ctx, c, true)
				return e.Stdout, err
			},
		},
		{
			Name:    "exec_code_all",
			Doc:     "Run code with the given interpreter and return its pid, retcode, stdout and stderr.",
			Example: `salt '*' cmd.exec_code_all sh 'echo hello; exit 3'`,
			Params:  codeParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runCode(ctx, c, false)
				return dictionary(e), err
			},
		},
		{
			Name:    "has_exec",
			Doc:     "Return whether the program can be found.",
			Example: `salt '*' cmd.has_exec cat`,
			Params:  []function.Param{{Name: "cmd", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return which(c.String("cmd")) != nil, nil
			},
		},
		{
			Name:    "retcode",
			Doc:     "Run a command and return its return code.",
			Example: `salt '*' cmd.retcode 'file /bin/bash'`,
			Params:  commandParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runCommand(ctx, c, true)
				return e.Code, err
			},
		},
		{
			Name:    "run",
			Doc:     "Run a command and return what it wrote, stdout and stderr in the order written.",
			Example: "salt '*' cmd.run 'ls -l | grep foo'\nsalt '*' cmd.run '[ls, -l, \"my file\"]' cwd=/tmp runas=nobody\nsalt '*' cmd.run cat stdin='one line' timeout=5",
			Params:  commandParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runCommand(ctx, c, true)
				return commandReply(c, e, e.Stdout), err
			},
		},
		{
			Name:    "run_all",
			Doc:     "Run a command and return its pid, retcode, stdout and stderr.",
			Example: `salt '*' cmd.run_all 'ls -l | grep foo'`,
			Params:  runAllParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runCommand(ctx, c, c.Bool("redirect_stderr"))
				return dictionary(e), err
			},
		},
		{
			Name:    "run_bg",
			Doc:     "Start a command that outlives its job and return its pid. Its output is dropped.",
			Example: `salt '*' cmd.run_bg 'fstrim /'`,
			Params:  commandParams,
			Run:     cmdRunBackground,
		},
		{
			Name:    "run_chroot",
			Doc:     "Run a command within another root directory and return its pid, retcode, stdout and stderr. Nothing is mounted there.",
			Example: `salt '*' cmd.run_chroot /srv/chroot 'ls -l'`,
			Params:  chrootParams,
			Run:     cmdRunChroot,
		},
		{
			Name:    "run_stderr",
			Doc:     "Run a command and return what it wrote to stderr.",
			Example: `salt '*' cmd.run_stderr 'ls -l /nosuch'`,
			Params:  commandParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runCommand(ctx, c, false)
				return commandReply(c, e, e.Stderr), err
			},
		},
		{
			Name:    "run_stdout",
			Doc:     "Run a command and return what it wrote to stdout.",
			Example: `salt '*' cmd.run_stdout 'ls -l | grep foo'`,
			Params:  commandParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runCommand(ctx, c, false)
				return commandReply(c, e, e.Stdout), err
			},
		},
		{
			Name:    "script",
			Doc:     "Fetch a script, run it and return its pid, retcode, stdout and stderr. The source is a path on the minion or an address (salt://, http://, https://); args are one line or a list.",
			Example: "salt '*' cmd.script /srv/scripts/runme.sh\nsalt '*' cmd.script /srv/scripts/runme.sh 'arg1 arg2 \"arg 3\"' runas=nobody",
			Params:  scriptParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runScript(ctx, c)
				return dictionary(e), err
			},
		},
		{
			Name:    "script_retcode",
			Doc:     "Fetch a script, run it and return its return code.",
			Example: `salt '*' cmd.script_retcode /srv/scripts/runme.sh 'arg1 arg2'`,
			Params:  scriptParams,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				e, err := runScript(ctx, c)
				return e.Code, err
			},
		},
		{
			Name:    "shell",
			Doc:     "Run a command by the shell, also one given as a list, and return what it wrote.",
			Example: `salt '*' cmd.shell 'ls -l | grep foo'`,
			Params:  commandParams,
			Run:     cmdShell,
		},
		{
			Name:    "shell_info",
			Doc:     "Return whether a shell is installed, its path and its version.",
			Example: `salt '*' cmd.shell_info bash`,
			Params:  []function.Param{{Name: "shell", Kind: function.String, Required: true}},
			Run:     cmdShellInfo,
		},
		{
			Name:    "shells",
			Doc:     "Return the shells that /etc/shells lists.",
			Example: `salt '*' cmd.shells`,
			Run:     cmdShells,
		},
		{
			Name:    "tty",
			Doc:     "Write a line to a terminal of the minion.",
			Example: `salt '*' cmd.tty pts/3 'This is a test'`,
			Params:  []function.Param{{Name: "device", Kind: function.String, Required: true}, {Name: "echo", Kind: function.String, Default: ""}},
			Run:     cmdTTY,
		},
		{
			Name:    "which",
			Doc:     "Return the path of a program, None if it is not there.",
			Example: `salt '*' cmd.which cat`,
			Params:  []function.Param{{Name: "cmd", Kind: function.String, Required: true}},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return which(c.String("cmd")), nil },
		},
		{
			Name:    "which_bin",
			Doc:     "Return the path of the first of the programs that is there, None if none is.",
			Example: `salt '*' cmd.which_bin '[pip3, pip, pip-python]'`,
			Params:  []function.Param{{Name: "cmds", Kind: function.Words, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				for _, name := range c.Words("cmds") {
					if path := which(name); path != nil {
						return path, nil
					}
				}
				return nil, nil
			},
		},
	},
}

// The parameters of the functions that need more than a command.
var (
	runAllParams = slices.Concat(commandParams, []function.Param{{Name: "redirect_stderr", Kind: function.Bool, Default: false}})
	chrootParams = slices.Concat([]function.Param{{Name: "root", Kind: function.String, Required: true}}, commandParams)
	scriptParams = slices.Concat([]function.Param{{Name: "source", Kind: function.String, Required: true}, {Name: "args"}}, commandParams[1:])
	codeParams   = slices.Concat([]function.Param{{Name: "lang", Kind: function.String, Required: true}, {Name: "code", Required: true}, {Name: "args"}}, commandParams[1:])
)

// dictionary is the return of the functions whose names end in _all.
func dictionary(e process.Ending) value.Map {
	return value.Map{{Key: "pid", V: int64(e.PID)}, {Key: "retcode", V: int64(e.Code)}, {Key: "stdout", V: e.Stdout}, {Key: "stderr", V: e.Stderr}}
}

// commandReply returns text, or for a command in the background its pid.
func commandReply(c *function.Call, e process.Ending, text string) any {
	if c.Bool("bg") {
		return map[string]any{"pid": e.PID}
	}
	return text
}

func cmdRunBackground(ctx context.Context, c *function.Call) (any, error) {
	args, err := argumentVector(ctx, c)
	if err != nil {
		return nil, err
	}
	p, err := prepare(ctx, c, args)
	if err != nil {
		return nil, err
	}
	pid, err := p.Detach()
	return map[string]any{"pid": pid}, err
}

func cmdRunChroot(ctx context.Context, c *function.Call) (any, error) {
	root := c.String("root")
	if info, err := os.Stat(root); err != nil || !info.IsDir() || !filepath.IsAbs(root) {
		return nil, function.Invalid("root %q is not an existing directory with an absolute path", root)
	}
	args, err := argumentVector(ctx, c)
	if err != nil {
		return nil, err
	}
	p, err := prepare(ctx, c, args)
	if err != nil {
		return nil, err
	}
	p.Chroot, p.Dir = root, "/"
	if c.Has("cwd") {
		p.Dir = c.String("cwd")
	}
	e, err := runProcess(ctx, c, p)
	return dictionary(e), err
}

func cmdShell(ctx context.Context, c *function.Call) (any, error) {
	text, err := function.ToString(c.Any("cmd"))
	if err != nil {
		words, err := function.ToWords(c.Any("cmd"))
		if err != nil {
			return nil, err
		}
		text = strings.Join(words, " ")
	}
	e, err := runArgs(ctx, c, shellCommand(c.String("shell"), text), true)
	return commandReply(c, e, e.Stdout), err
}

// runScript copies the script to a private directory, runs it and removes it.
func runScript(ctx context.Context, c *function.Call) (process.Ending, error) {
	source, err := openSource(ctx, c, c.String("source"), c.String("saltenv"))
	if err != nil {
		return process.Ending{}, err
	}
	defer source.Close()
	words, err := scriptArgs(c)
	if err != nil {
		return process.Ending{}, err
	}
	if c.Has("template") {
		text, err := renderSource(ctx, c, c.String("source"))
		if err != nil {
			return process.Ending{}, err
		}
		return runFile(ctx, c, strings.NewReader(text), nil, words, false)
	}
	return runFile(ctx, c, source, nil, words, false)
}

// runCode runs the argument code with the interpreter lang.
func runCode(ctx context.Context, c *function.Call, merge bool) (process.Ending, error) {
	lines, ok := c.Any("code").([]any)
	if !ok {
		lines = []any{c.Any("code")}
	}
	var code strings.Builder
	for _, line := range lines {
		text, err := function.ToString(line)
		if err != nil {
			return process.Ending{}, err
		}
		code.WriteString(text + "\n")
	}
	words, err := scriptArgs(c)
	if err != nil {
		return process.Ending{}, err
	}
	text := code.String()
	if err := renderWord(ctx, c, &text); err != nil {
		return process.Ending{}, err
	}
	return runFile(ctx, c, strings.NewReader(text), []string{c.String("lang")}, words, merge)
}

// scriptArgs returns the words of the argument args, a line or a list.
func scriptArgs(c *function.Call) ([]string, error) {
	switch args := c.Any("args").(type) {
	case nil:
		return nil, nil
	case []any:
		return function.ToWords(args)
	default:
		line, err := function.ToString(args)
		if err != nil {
			return nil, err
		}
		return splitCommand(line)
	}
}

// runFile runs the content of source as a file, with the interpreter if there is one. The file is
// in a new directory that only its user can enter.
func runFile(ctx context.Context, c *function.Call, source io.Reader, interpreter, words []string, merge bool) (process.Ending, error) {
	if c.Bool("bg") {
		return process.Ending{}, function.Invalid("a script cannot run in the background: its file is removed when its job ends")
	}
	dir, err := os.MkdirTemp("", "brine-")
	if err != nil {
		return process.Ending{}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "script")
	p, err := prepare(ctx, c, slices.Concat(interpreter, []string{file}, words))
	if err != nil {
		return process.Ending{}, err
	}
	p.Merge = merge
	if err := writeScript(file, source, p.Credential); err != nil {
		return process.Ending{}, err
	}
	return runProcess(ctx, c, p)
}

// writeScript writes a file that only its user can read and run.
func writeScript(path string, source io.Reader, user *posix.Credential) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, source)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	if user == nil {
		return nil
	}
	uid, gid := int(user.UID), int(user.GID)
	return errors.Join(os.Chown(path, uid, gid), os.Chown(filepath.Dir(path), uid, gid))
}

func cmdShellInfo(ctx context.Context, c *function.Call) (any, error) {
	path, ok := which(c.String("shell")).(string)
	if !ok {
		return map[string]any{"installed": false}, nil
	}
	info := map[string]any{"installed": true, "path": path, "version": nil}
	if e, err := tool(ctx, path, "--version"); err == nil && e.Code == 0 { // dash and others do not have this option
		if version := regexp.MustCompile(`\d+(\.\d+)+`).FindString(e.Stdout); version != "" {
			info["version"] = version
		}
	}
	return info, nil
}

func cmdShells(context.Context, *function.Call) (any, error) {
	data, err := os.ReadFile("/etc/shells")
	if err != nil {
		return nil, err
	}
	shells := []string{}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
			shells = append(shells, line)
		}
	}
	return shells, nil
}

func cmdTTY(_ context.Context, c *function.Call) (any, error) {
	device := strings.TrimPrefix(c.String("device"), "/dev/")
	if !regexp.MustCompile(`^(tty[A-Za-z0-9]*|pts/[0-9]+)$`).MatchString(device) {
		return nil, function.Invalid("%q is not a terminal, for example tty1 or pts/0", device)
	}
	f, err := os.OpenFile("/dev/"+device, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(c.String("echo") + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return map[string]any{"Success": "Message was successfully echoed to " + device}, nil
}

// which returns the path of a program, nil if it is missing. A path is checked directly; a name
// without a slash is never looked up in the working directory.
func which(name string) any {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil
	}
	return path
}
