package cli

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/output"
)

// CompleteFlag, as the first word of a command line, asks for completions of the last of the
// other words, one a line. The scripts of shells use it.
const CompleteFlag = "--complete"

// completeTime limits how long a user who has pressed Tab waits. If a daemon is down or busy,
// only the words that need no daemon are shown.
const completeTime = 250 * time.Millisecond

// Completion is a word being typed.
type Completion struct {
	Flag   string         // the full name of the option whose value it is; "" if it is not a value
	Words  []string       // words before it that are neither options nor their values
	Prefix string         // what was typed of it
	Opts   *urcli.Context // the options before it
}

// harmless matches text that needs no quotes in any shell. Tags and ids come from others: text
// that could inject something into a command line is not completed.
var harmless = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`) })

// logLevels are the values of --log-level.
var logLevels = strings.Fields("all garbage trace debug profile info warning error critical quiet")

// complete prints the completions of the last of words. It prints nothing else and always
// succeeds: errors would appear in the middle of the line being typed.
func (e *Env) complete(ctx context.Context, spec Spec, words []string) error {
	if len(words) == 0 {
		return nil
	}
	e.Stderr, e.quiet = io.Discard, true
	c, options := e.typed(ctx, spec, words)
	list := options
	if options == nil {
		list = e.candidates(ctx, spec, c)
	}
	slices.Sort(list)
	for _, w := range slices.Compact(list) {
		if strings.HasPrefix(w, words[len(words)-1]) && harmless().MatchString(w) {
			fmt.Fprintln(e.Stdout, w)
		}
	}
	return nil
}

// typed parses the words before the last one. If the last one is an option, it returns the
// possible options.
func (e *Env) typed(ctx context.Context, spec Spec, words []string) (c Completion, options []string) {
	flags := allFlags(spec)
	g := newGrammar(flags)
	before, last := words[:len(words)-1], words[len(words)-1]
	c.Prefix = last
	var known []string // options before it, in the normal form
	for i := 0; i < len(before); i++ {
		w := before[i]
		if w == "--" {
			c.Words = append(c.Words, before[i+1:]...)
			c.Opts = e.parsed(ctx, g, flags, known)
			return c, nil
		}
		if !g.isOption(w) {
			c.Words = append(c.Words, w)
			continue
		}
		read, used, err := g.read(w, append(slices.Clone(before[i+1:]), "1"))
		if used == 1 && i+1 == len(before) {
			c.Flag = flagOf(read)
			break
		}
		i += used
		if err == nil {
			known = append(known, read...)
		}
	}
	c.Opts = e.parsed(ctx, g, flags, known)
	if c.Flag != "" || !strings.HasPrefix(last, "-") {
		return c, nil
	}
	name, value, attached := strings.Cut(last, "=")
	if f := g[strings.TrimPrefix(name, "--")]; attached && f != nil && takesValue(f) {
		c.Flag, c.Prefix = strings.TrimLeft(option(f), "-"), value
		return c, prefixed(name+"=", e.candidates(ctx, spec, c))
	}
	return c, visible(flags)
}

// flagOf returns the name of the last of some options in the normal form.
func flagOf(options []string) string {
	if len(options) == 0 {
		return ""
	}
	name, _, _ := strings.Cut(options[len(options)-1], "=")
	return strings.TrimLeft(name, "-")
}

// visible returns the long names of options, and the short ones of those without a long name.
func visible(flags []urcli.Flag) []string {
	list := []string{}
	for _, f := range flags {
		if isVisible(f) {
			list = append(list, option(f))
		}
	}
	return list
}

func prefixed(by string, words []string) []string {
	list := []string{}
	for _, w := range words {
		list = append(list, by+w)
	}
	return list
}

// parsed returns these options as a program would get them.
func (e *Env) parsed(ctx context.Context, g grammar, flags []urcli.Flag, known []string) (opts *urcli.Context) {
	args := append(known, "--")
	app := e.app(needed(flags, g.given(args)))
	app.Action = func(c *urcli.Context) error { opts = c; return nil }
	if err := app.RunContext(ctx, append([]string{e.Name}, args...)); err != nil || opts == nil {
		return urcli.NewContext(app, nil, nil)
	}
	return opts
}

// candidates returns possible completions, and others that complete filters out.
func (e *Env) candidates(ctx context.Context, spec Spec, c Completion) []string {
	switch {
	case c.Flag == "out" && spec.Output:
		return output.Names()
	case c.Flag == "log-level" || c.Flag == "log-file-level":
		return slices.Clone(logLevels)
	}
	var commands []string
	if c.Flag == "" && len(c.Words) == 0 {
		for _, command := range spec.Commands {
			commands = append(commands, command.Name)
		}
	}
	return append(commands, e.asked(ctx, spec, c)...)
}

// asked returns the candidates of the program itself.
func (e *Env) asked(ctx context.Context, spec Spec, c Completion) []string {
	if spec.Complete == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	found := make(chan []string, 1) // so that a late answer does not block
	go func() { found <- spec.Complete(ctx, e, c) }()
	select {
	case list := <-found:
		return slices.DeleteFunc(list, func(w string) bool { return strings.HasPrefix(w, "-") })
	case <-ctx.Done():
		return nil
	}
}

// Last splits a comma-separated list at its last comma: before, and the part being typed.
func (c Completion) Last() (before, last string) {
	i := strings.LastIndexByte(c.Prefix, ',') + 1
	return c.Prefix[:i], c.Prefix[i:]
}
