package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/version"
)

// DefaultConfigDir is the configuration directory without -c and SALT_CONFIG_DIR.
const DefaultConfigDir = "/etc/salt"

// Spec describes the command line of a binary.
type Spec struct {
	Synopsis []string // one line for each form of the call, without the program's name
	Summary  string   // what it is for, in a sentence or two
	Examples []string // command lines, shown at the end of -h

	// Flags are the program's own options, the most important first. Category is the heading in
	// -h; a word in backquotes in Usage stands for the value. Required and Action are not used:
	// Run checks what it needs. A name used here is removed from the common options: in
	// salt-key, -l is --list, and the log level has only --log-level.
	Flags []urcli.Flag

	// Commands are the subcommands of the program, if each is described by its own Spec: for
	// the manual.
	Commands []Command

	// Ignored are options of Salt that have no effect here. They are accepted with a note, and
	// not shown in -h. "m,module-dirs=" has two names and a value; a reason for the note may
	// stand behind ": ".
	Ignored []string

	// Refused are options of Salt that cannot be supported: users must not believe that they
	// work. They are not shown in -h.
	Refused []Refusal

	Output bool // has the options for the output: --out and others
	Daemon bool // serves until a signal: a broken pipe does not end it

	// Complete returns completions of a word of the command line, besides options. Words that
	// do not match, or would need quotes in a shell, are filtered out. nil means none.
	Complete func(ctx context.Context, env *Env, c Completion) []string

	// Run does the work, with the options parsed. Its error is reported, see Env.Report;
	// opts.Args holds the words that are not options.
	Run func(ctx context.Context, env *Env, opts *urcli.Context) error
}

// Refusal is an option of Salt that is refused, and why.
type Refusal struct {
	Option string // as in Spec.Ignored
	Reason string // printed as "option --range: REASON"
	Hint   string // what to do instead
}

// Command is a subcommand, with the start of its description.
type Command struct {
	Name    string
	Summary string
}

// Run parses the command line, handles -h, --version and --versions-report itself, calls
// spec.Run for everything else, reports its error and returns the exit code.
func (e *Env) Run(ctx context.Context, spec Spec) int {
	err := e.run(ctx, spec)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = context.Cause(ctx) // the signal, if there was one
	}
	return e.Report(err)
}

func (e *Env) run(ctx context.Context, spec Spec) error {
	if len(e.Args) > 0 && e.Args[0] == CompleteFlag {
		return e.complete(ctx, spec, e.Args[1:])
	}
	ignored, refused := ignoredFlags(spec), refusedFlags(spec)
	flags := slices.Concat(allFlags(spec), ignored, refused)
	g := newGrammar(flags)
	args, err := g.normalize(e.Args)
	if err != nil {
		return err
	}
	if text, ok := e.answer(spec, args); ok {
		_, err := io.WriteString(e.Stdout, text)
		return err
	}
	given := g.given(args)
	app := e.app(needed(flags, given))
	app.Action = func(opts *urcli.Context) error {
		if err := cmp.Or(checkRefused(spec, refused, given), checkLevels(opts), checkOutput(opts)); err != nil {
			return err // even if the program does not use them
		}
		e.quiet, e.progress = opts.Bool("quiet"), opts.Bool("progress")
		e.noteIgnored(ignored, given)
		if spec.Daemon {
			signal.Ignore(syscall.SIGPIPE)
		}
		return spec.Run(ctx, e, opts)
	}
	return app.RunContext(ctx, append([]string{e.Name}, args...))
}

// app returns an urfave/cli application that only parses flags: help, version, error messages
// and the exit are ours.
func (e *Env) app(flags []urcli.Flag) *urcli.App {
	return &urcli.App{
		Name:                      e.Name,
		HideHelp:                  true,
		HideVersion:               true,
		Flags:                     flags,
		DisableSliceFlagSeparator: true,            // a comma is a part of the value
		Compiled:                  time.Unix(1, 0), // otherwise it asks the file system
		Reader:                    e.Stdin,
		Writer:                    io.Discard,
		ErrWriter:                 io.Discard,
		OnUsageError: func(_ *urcli.Context, err error, _ bool) error {
			return Fail(Usage, err)
		},
		ExitErrHandler: func(*urcli.Context, error) {}, // otherwise it calls os.Exit
	}
}

// answer returns the output of the options that end the program before it reads any file; args
// are normalized. urfave/cli does not do it, since it takes the first word before -h for a
// subcommand.
func (e *Env) answer(spec Spec, args []string) (text string, ok bool) {
	given := args[:slices.Index(args, "--")]
	switch {
	case slices.Contains(given, "--help"):
		return Help(e.Name, spec), true
	case slices.Contains(given, "--man"):
		return Manual(e.Name, spec), true
	case slices.Contains(given, "--version"):
		return fmt.Sprintf("%s %s (%s)\n", e.Name, version.Version(), version.Name), true
	case slices.Contains(given, "--versions-report"):
		return version.Report(e.Name), true
	}
	return "", false
}

// needed returns the options that urfave/cli must know: those given, and those with a default or
// a variable of the environment.
// Others are unset and zero.
//
// This is only for speed. For each option, urfave/cli compares each name of every other one,
// with a regular expression: with forty options that is a sixth of the whole time of a command.
func needed(flags []urcli.Flag, given map[urcli.Flag]bool) []urcli.Flag {
	var list []urcli.Flag
	for _, f := range flags {
		if given[f] || hasDefault(f) {
			list = append(list, f)
		}
	}
	return list
}

// hasDefault reports whether f may have a value other than zero when it is not given.
func hasDefault(f urcli.Flag) bool {
	switch f := f.(type) {
	case *urcli.BoolFlag:
		return f.Value
	case *urcli.StringFlag:
		return f.Value != "" || len(f.EnvVars) > 0
	case *urcli.IntFlag:
		return f.Value != 0
	case *urcli.StringSliceFlag:
		return f.Value != nil
	}
	return true // unless known otherwise
}

// noteIgnored prints which of the given options have no effect.
func (e *Env) noteIgnored(ignored []urcli.Flag, given map[urcli.Flag]bool) {
	for _, f := range ignored {
		if !given[f] {
			continue
		}
		reason := ""
		if doc, ok := f.(urcli.DocGenerationFlag); ok && doc.GetUsage() != "" {
			reason = ": " + doc.GetUsage()
		}
		e.Note("%s has no effect in %s%s", option(f), version.Name, reason)
	}
}

// ConfigDir returns the directory of -c, or else that of SALT_CONFIG_DIR, or else
// DefaultConfigDir.
func (e *Env) ConfigDir(opts *urcli.Context) string {
	if dir := opts.String("config-dir"); dir != "" {
		return dir
	}
	if dir := e.Getenv("SALT_CONFIG_DIR"); dir != "" {
		return dir
	}
	return DefaultConfigDir
}

// allFlags returns the options in the order of -h: the program's own, then those for the
// output, then the general ones.
func allFlags(spec Spec) []urcli.Flag {
	own := newGrammar(spec.Flags)
	flags := slices.Clone(spec.Flags)
	if spec.Output {
		flags = append(flags, outputFlags(own)...)
	}
	talk := talkFlags(own)
	if spec.Daemon { // nobody waits for its output
		talk = slices.DeleteFunc(talk, func(f urcli.Flag) bool { return f.Names()[0] == "progress" })
	}
	flags = append(flags, talk...)
	return append(flags, generalFlags(own)...)
}

// talkFlags returns the options about messages, except those that own has with a wider meaning.
func talkFlags(own grammar) []urcli.Flag {
	const group = "General"
	var flags []urcli.Flag
	if own["quiet"] == nil {
		flags = append(flags, &urcli.BoolFlag{Category: group, Name: "quiet", Aliases: own.free("q"),
			Usage: "say nothing but errors on standard error"})
	}
	if own["progress"] == nil {
		flags = append(flags, &urcli.BoolFlag{Category: group, Name: "progress",
			Usage: "tell what is waited for, and notes, also where standard error is not a terminal"})
	}
	return flags
}

// free returns the names that no option in g has.
func (g grammar) free(names ...string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return g[n] != nil })
}

// generalFlags returns the options of every binary, without the short names that
// own has taken.
func generalFlags(own grammar) []urcli.Flag {
	const group = "General"
	return []urcli.Flag{
		&urcli.StringFlag{Category: group, Name: "config-dir", Aliases: own.free("c"),
			Usage: "read the configuration from `DIR` instead of " + DefaultConfigDir},
		&urcli.StringFlag{Category: group, Name: "log-level", Aliases: own.free("l"),
			Usage: "show log messages from `LEVEL` up: " + strings.Join(logLevels, ", ")},
		&urcli.StringFlag{Category: group, Name: "log-file",
			Usage: "write the log to `FILE` also"},
		&urcli.StringFlag{Category: group, Name: "log-file-level",
			Usage: "write log messages from `LEVEL` up"},
		&urcli.BoolFlag{Category: group, Name: "version",
			Usage: "print the version and exit"},
		&urcli.BoolFlag{Category: group, Name: "versions-report", Aliases: own.free("V"),
			Usage: "print the versions of all parts and exit"},
		&urcli.BoolFlag{Category: group, Name: "man",
			Usage: "print the page of the manual and exit"},
		&urcli.BoolFlag{Category: group, Name: "help", Aliases: own.free("h"),
			Usage: "print this text and exit"},
	}
}

// outputFlags returns the options for the output.
func outputFlags(own grammar) []urcli.Flag {
	const group = "Output"
	return []urcli.Flag{
		&urcli.StringFlag{Category: group, Name: "out", Aliases: own.free("output"),
			Usage: "print results as `FORM`: " + strings.Join(output.Names(), ", ")},
		&urcli.IntFlag{Category: group, Name: "out-indent",
			Usage: "indent by `N` blanks; a negative number puts all on one line"},
		&urcli.StringFlag{Category: group, Name: "out-file", Aliases: own.free("output-file"),
			Usage: "write results to `FILE`"},
		&urcli.BoolFlag{Category: group, Name: "out-file-append", Aliases: own.free("output-file-append"),
			Usage: "append to that file instead of replacing it"},
		&urcli.BoolFlag{Category: group, Name: "no-color", Aliases: own.free("no-colour"),
			Usage: "never colour the output; so does a NO_COLOR in the environment"},
		&urcli.BoolFlag{Category: group, Name: "force-color", Aliases: own.free("force-colour"),
			Usage: "colour the output even when it is not a terminal"},
	}
}

// ignoredFlags makes hidden options of Spec.Ignored, and of those that every binary of Salt has
// and Brine does not need.
func ignoredFlags(spec Spec) []urcli.Flag {
	names := append([]string{"hard-crash", "saltfile="}, spec.Ignored...)
	if spec.Output {
		names = append(names, "state-output,state_output=", "state-verbose,state_verbose=")
	}
	var flags []urcli.Flag
	for _, n := range names {
		flags = append(flags, hiddenFlag(n))
	}
	return flags
}

// refusedFlags makes hidden options of Spec.Refused, in its order.
func refusedFlags(spec Spec) []urcli.Flag {
	flags := make([]urcli.Flag, len(spec.Refused))
	for i, r := range spec.Refused {
		flags[i] = hiddenFlag(r.Option)
	}
	return flags
}

// checkRefused returns the error for a refused option that is given.
func checkRefused(spec Spec, refused []urcli.Flag, given map[urcli.Flag]bool) error {
	for i, f := range refused {
		if given[f] {
			r := spec.Refused[i]
			return salt.WithHint(Usagef("%s: %s", option(f), r.Reason), r.Hint)
		}
	}
	return nil
}

// hiddenFlag is an option that is accepted and not shown in -h; "m,module-dirs=" has two names
// and a value, and behind ": " it may say why it has no effect.
func hiddenFlag(names string) urcli.Flag {
	names, reason, _ := strings.Cut(names, ": ")
	list, takesValue := strings.CutSuffix(names, "=")
	all := strings.Split(list, ",")
	if takesValue {
		return &urcli.StringFlag{Name: all[0], Aliases: all[1:], Usage: reason, Hidden: true}
	}
	return &urcli.BoolFlag{Name: all[0], Aliases: all[1:], Usage: reason, Hidden: true}
}
