package module

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
)

// commandParams are the parameters that all functions of cmd share, after their own.
var commandParams = []function.Param{
	{Name: "cmd", Required: true},
	{Name: "cwd", Kind: function.String},
	{Name: "stdin", Kind: function.String},
	{Name: "runas", Kind: function.String},
	{Name: "group", Kind: function.String},
	{Name: "shell", Kind: function.String, Default: "/bin/sh"},
	{Name: "python_shell", Kind: function.Bool},
	{Name: "env", Kind: function.Map},
	{Name: "clean_env", Kind: function.Bool, Default: false},
	{Name: "rstrip", Kind: function.Bool, Default: true},
	{Name: "umask"},
	{Name: "output_encoding", Kind: function.String},
	{Name: "output_loglevel", Kind: function.String, Default: "debug"},
	{Name: "timeout", Kind: function.Float},
	{Name: "reset_system_locale", Kind: function.Bool, Default: true},
	{Name: "ignore_retcode", Kind: function.Bool, Default: false},
	{Name: "success_retcodes", Kind: function.List},
	{Name: "success_stdout", Kind: function.List},
	{Name: "success_stderr", Kind: function.List},
	{Name: "hide_output", Kind: function.Bool, Default: false},
	{Name: "raise_err", Kind: function.Bool, Default: false},
	{Name: "bg", Kind: function.Bool, Default: false},
	{Name: "prepend_path", Kind: function.String},
	{Name: "template", Kind: function.String},
	saltenv,
}

// prepare prepares the program that the shared parameters describe, to run args.
func prepare(ctx context.Context, c *function.Call, args []string) (*process.Program, error) {
	p := &process.Program{Args: args, Dir: c.String("cwd"), Timeout: seconds(c.Float("timeout"))}
	if !c.Bool("hide_output") {
		p.Watcher = c.Host.Output
	}
	if c.Has("stdin") {
		stdin := c.String("stdin")
		p.Stdin = &stdin
	}
	home := os.Getenv("HOME")
	var user *identity
	if c.Has("runas") || c.Has("group") {
		id, err := findIdentity(ctx, c.String("runas"), c.String("group"))
		if err != nil {
			return nil, err
		}
		user, home = id, id.home
		p.Credential = id.credential()
	}
	var err error
	if p.Umask, err = umaskOf(c); err != nil {
		return nil, err
	}
	p.Env = commandEnviron(c, user)
	p.Dir, err = workingDirectory(p.Dir, home)
	return p, err
}

// workingDirectory returns dir, which must exist, or if it is empty the user's home.
func workingDirectory(dir, home string) (string, error) {
	if dir == "" {
		if info, err := os.Stat(home); err != nil || !info.IsDir() {
			return "/", nil
		}
		return home, nil
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || !strings.HasPrefix(dir, "/") {
		return "", function.Invalid("cwd %q is not an existing directory with an absolute path", dir)
	}
	return dir, nil
}

// commandEnviron returns the environment that the parameters describe.
func commandEnviron(c *function.Call, user *identity) []string {
	var env []string
	switch {
	case c.Bool("clean_env"):
		env = []string{} // nil would mean the minion's own
	case user != nil && !user.isSelf():
		env = user.environ()
		if c.Bool("reset_system_locale") {
			env = append(env, "LANG=C", "LC_ALL=C")
		}
	default:
		env = process.Environ(c.Bool("reset_system_locale"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Map("env"))) {
		text, err := function.ToString(c.Map("env")[name])
		if err != nil && c.Map("env")[name] != nil {
			text = repr(c.Map("env")[name])
		}
		env = append(env, name+"="+text) // the last duplicate counts
	}
	if c.Has("prepend_path") {
		env = append(env, "PATH="+c.String("prepend_path")+":"+lastPath(env))
	}
	return append(env, c.Host.Environ...)
}

func lastPath(env []string) string {
	for _, pair := range slices.Backward(env) {
		if path, ok := strings.CutPrefix(pair, "PATH="); ok {
			return path
		}
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// umaskOf returns the octal digits of the mask. A number is refused: an unquoted 022 arrives at the
// minion as 18, and a guess could make files accessible to others.
func umaskOf(c *function.Call) (string, error) {
	switch mask := c.Any("umask").(type) {
	case nil:
		return "", nil
	case string:
		if mask != "" && len(mask) <= 4 && strings.Trim(mask, "01234567") == "" {
			return mask, nil
		}
	}
	return "", function.Invalid(`umask must be octal digits as text, for example umask='"022"', not %s`, repr(c.Any("umask")))
}

// argumentVector converts the argument cmd to an argument vector: a text is run by the shell,
// unless python_shell is false; a list is already a vector, unless python_shell is true.
func argumentVector(ctx context.Context, c *function.Call) ([]string, error) {
	if list, ok := c.Any("cmd").([]any); ok {
		words, err := function.ToWords(list)
		for i := range words {
			err = errors.Join(err, renderWord(ctx, c, &words[i]))
		}
		switch {
		case err != nil:
			return nil, err
		case len(words) == 0:
			return nil, function.Invalid("the command is empty")
		case c.Bool("python_shell"):
			return shellCommand(c.String("shell"), strings.Join(words, " ")), nil
		}
		return words, nil
	}
	text, err := function.ToString(c.Any("cmd"))
	if err != nil || strings.TrimSpace(text) == "" {
		return nil, function.Invalid("a command is text or a list of words, not %s", repr(c.Any("cmd")))
	}
	if err := renderWord(ctx, c, &text); err != nil {
		return nil, err
	}
	if !c.Has("python_shell") || c.Bool("python_shell") {
		return shellCommand(c.String("shell"), text), nil
	}
	words, err := splitCommand(text)
	if err == nil && len(words) == 0 {
		err = errors.New("the command is empty")
	}
	return words, err
}

// renderWord renders a word of a command if the argument template requests it. Values of grains and
// pillar are not quoted, like everything else in the command.
func renderWord(ctx context.Context, c *function.Call, word *string) error {
	if !c.Has("template") {
		return nil
	}
	text, err := rendered(ctx, c, *word)
	*word = text
	return err
}

func shellCommand(shell, text string) []string {
	if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
		text = " " + text // otherwise the shell would take it for an option
	}
	return []string{shell, "-c", text}
}

// runCommand runs the argument cmd.
func runCommand(ctx context.Context, c *function.Call, merge bool) (process.Ending, error) {
	args, err := argumentVector(ctx, c)
	if err != nil {
		return process.Ending{}, err
	}
	return runArgs(ctx, c, args, merge)
}

// runArgs runs a program with the shared parameters and sets the job's return code from it.
func runArgs(ctx context.Context, c *function.Call, args []string, merge bool) (process.Ending, error) {
	p, err := prepare(ctx, c, args)
	if err != nil {
		return process.Ending{}, err
	}
	p.Merge = merge
	return runProcess(ctx, c, p)
}

// runProcess runs a prepared program and logs its result.
func runProcess(ctx context.Context, c *function.Call, p *process.Program) (process.Ending, error) {
	if c.Bool("bg") {
		pid, err := p.Detach()
		return process.Ending{PID: pid}, err
	}
	e, err := p.Run(ctx)
	if err != nil {
		return process.Ending{}, err
	}
	if err := shapeEnding(c, &e, p); err != nil {
		return process.Ending{}, err
	}
	logCommand(ctx, c, &e)
	if !c.Bool("ignore_retcode") {
		c.SetRetcode(e.Code)
	}
	if c.Bool("raise_err") && e.Code != 0 {
		return process.Ending{}, e.Failure("command")
	}
	return e, nil
}

// shapeEnding converts an ending to the requested form.
func shapeEnding(c *function.Call, e *process.Ending, p *process.Program) (err error) {
	for _, stream := range []*string{&e.Stdout, &e.Stderr} {
		if *stream, err = decodeText(*stream, c.String("output_encoding")); err != nil {
			return err
		}
		if c.Bool("rstrip") {
			*stream = strings.TrimRight(*stream, " \t\r\n\v\f")
		}
	}
	if e.TimedOut {
		e.Code = 1
		stream := &e.Stderr
		if p.Merge {
			stream = &e.Stdout
		}
		*stream = strings.TrimPrefix(*stream+fmt.Sprintf("\nTimed out after %v and was killed", p.Timeout), "\n")
	}
	if countsAsSuccess(c, e) {
		e.Code = 0
	}
	if c.Bool("hide_output") {
		e.Stdout, e.Stderr = "", ""
	}
	return nil
}

func countsAsSuccess(c *function.Call, e *process.Ending) bool {
	among := func(param string, v any) bool {
		return slices.ContainsFunc(c.List(param), func(w any) bool { return w == v })
	}
	return !e.TimedOut && (among("success_retcodes", int64(e.Code)) || among("success_stdout", e.Stdout) || among("success_stderr", e.Stderr))
}

// logCommand logs the result of a command at the level of output_loglevel. The command itself and
// its output may contain secrets: they are never logged.
func logCommand(ctx context.Context, c *function.Call, e *process.Ending) {
	var level slog.Level
	name := c.String("output_loglevel")
	if name == "quiet" || level.UnmarshalText([]byte(name)) != nil {
		return // "quiet", or one of Salt's levels below debug
	}
	c.Host.Logger().Log(ctx, level, "command ended", "jid", c.JID, "fun", c.Function, "pid", e.PID, "retcode", e.Code)
}

// decodeText converts output to UTF-8. Without an encoding it is unchanged.
func decodeText(s, encoding string) (string, error) {
	switch strings.ReplaceAll(strings.ToLower(encoding), "_", "-") {
	case "", "utf-8", "utf8", "ascii":
		return s, nil
	case "latin-1", "latin1", "iso-8859-1", "iso8859-1":
		var b strings.Builder
		for i := range len(s) {
			b.WriteRune(rune(s[i]))
		}
		return b.String(), nil
	}
	return "", function.Invalid("unknown output_encoding %q, known are utf-8 and latin-1", encoding)
}
