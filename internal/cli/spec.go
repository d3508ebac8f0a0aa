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
	// -h; a word in backquotes in Usage stands for the value. Run checks what it needs. A name
	// used here is removed from the common options: in salt-key, -l is --list, and the log level
	// has only --log-level.
	Flags []Option

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
	Run func(ctx context.Context, env *Env, opts *Options) error
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
	opts := g.values(args, e.Getenv)
	if text, ok := e.answer(spec, opts); ok {
		_, err := io.WriteString(e.Stdout, text)
		return err
	}
	if err := cmp.Or(checkRefused(spec, refused, opts), checkLevels(opts), checkOutput(opts)); err != nil {
		return err // even if the program does not use them
	}
	e.quiet, e.progress = opts.Bool("quiet"), opts.Bool("progress")
	e.noteIgnored(ignored, opts)
	if spec.Daemon {
		signal.Ignore(syscall.SIGPIPE)
	}
	return spec.Run(ctx, e, opts)
}

// answer returns the output of the options that end the program before it reads any file.
func (e *Env) answer(spec Spec, opts *Options) (text string, ok bool) {
	switch {
	case opts.Bool("help"):
		return Help(e.Name, spec), true
	case opts.Bool("man"):
		return Manual(e.Name, spec), true
	case opts.Bool("version"):
		return fmt.Sprintf("%s %s (%s)\n", e.Name, version.Version(), version.Name), true
	case opts.Bool("versions-report"):
		return version.Report(e.Name), true
	}
	return "", false
}

// noteIgnored prints which of the given options have no effect.
func (e *Env) noteIgnored(ignored []Option, opts *Options) {
	for _, f := range ignored {
		if !opts.has(f) {
			continue
		}
		reason := ""
		if usage := f.text().usage; usage != "" {
			reason = ": " + usage
		}
		e.Note("%s has no effect in %s%s", normal(f), version.Name, reason)
	}
}

// ConfigDir returns the directory of -c, or else that of SALT_CONFIG_DIR, or else
// DefaultConfigDir.
func (e *Env) ConfigDir(opts *Options) string {
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
func allFlags(spec Spec) []Option {
	own := newGrammar(spec.Flags)
	flags := slices.Clone(spec.Flags)
	if spec.Output {
		flags = append(flags, outputFlags(own)...)
	}
	talk := talkFlags(own)
	if spec.Daemon { // nobody waits for its output
		talk = slices.DeleteFunc(talk, func(f Option) bool { return f.Names()[0] == "progress" })
	}
	flags = append(flags, talk...)
	return append(flags, generalFlags(own)...)
}

// talkFlags returns the options about messages, except those that own has with a wider meaning.
func talkFlags(own grammar) []Option {
	const group = "General"
	var flags []Option
	if own["quiet"] == nil {
		flags = append(flags, &Bool{Category: group, Name: "quiet", Aliases: own.free("q"),
			Usage: "say nothing but errors on standard error"})
	}
	if own["progress"] == nil {
		flags = append(flags, &Bool{Category: group, Name: "progress",
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
func generalFlags(own grammar) []Option {
	const group = "General"
	return []Option{
		&String{Category: group, Name: "config-dir", Aliases: own.free("c"),
			Usage: "read the configuration from `DIR` instead of " + DefaultConfigDir},
		&String{Category: group, Name: "log-level", Aliases: own.free("l"),
			Usage: "show log messages from `LEVEL` up: " + strings.Join(logLevels, ", ")},
		&String{Category: group, Name: "log-file",
			Usage: "write the log to `FILE` also"},
		&String{Category: group, Name: "log-file-level",
			Usage: "write log messages from `LEVEL` up"},
		&Bool{Category: group, Name: "version",
			Usage: "print the version and exit"},
		&Bool{Category: group, Name: "versions-report", Aliases: own.free("V"),
			Usage: "print the versions of all parts and exit"},
		&Bool{Category: group, Name: "man",
			Usage: "print the page of the manual and exit"},
		&Bool{Category: group, Name: "help", Aliases: own.free("h"),
			Usage: "print this text and exit"},
	}
}

// outputFlags returns the options for the output.
func outputFlags(own grammar) []Option {
	const group = "Output"
	return []Option{
		&String{Category: group, Name: "out", Aliases: own.free("output"),
			Usage: "print results as `FORM`: " + strings.Join(output.Names(), ", ")},
		&Int{Category: group, Name: "out-indent",
			Usage: "indent by `N` blanks; a negative number puts all on one line"},
		&String{Category: group, Name: "out-file", Aliases: own.free("output-file"),
			Usage: "write results to `FILE`"},
		&Bool{Category: group, Name: "out-file-append", Aliases: own.free("output-file-append"),
			Usage: "append to that file instead of replacing it"},
		&Bool{Category: group, Name: "no-color", Aliases: own.free("no-colour"),
			Usage: "never colour the output; so does a NO_COLOR in the environment"},
		&Bool{Category: group, Name: "force-color", Aliases: own.free("force-colour"),
			Usage: "colour the output even when it is not a terminal"},
	}
}

// ignoredFlags makes hidden options of Spec.Ignored, and of those that every binary of Salt has
// and Brine does not need.
func ignoredFlags(spec Spec) []Option {
	names := append([]string{"hard-crash", "saltfile="}, spec.Ignored...)
	if spec.Output {
		names = append(names, "state-output,state_output=", "state-verbose,state_verbose=")
	}
	var flags []Option
	for _, n := range names {
		flags = append(flags, hiddenFlag(n))
	}
	return flags
}

// refusedFlags makes hidden options of Spec.Refused, in its order.
func refusedFlags(spec Spec) []Option {
	flags := make([]Option, len(spec.Refused))
	for i, r := range spec.Refused {
		flags[i] = hiddenFlag(r.Option)
	}
	return flags
}

// checkRefused returns the error for a refused option that is given.
func checkRefused(spec Spec, refused []Option, opts *Options) error {
	for i, f := range refused {
		if opts.has(f) {
			r := spec.Refused[i]
			return salt.WithHint(Usagef("%s: %s", normal(f), r.Reason), r.Hint)
		}
	}
	return nil
}

// hiddenFlag is an option that is accepted and not shown in -h; "m,module-dirs=" has two names
// and a value, and behind ": " it may say why it has no effect.
func hiddenFlag(names string) Option {
	names, reason, _ := strings.Cut(names, ": ")
	list, takesValue := strings.CutSuffix(names, "=")
	all := strings.Split(list, ",")
	if takesValue {
		return &String{Name: all[0], Aliases: all[1:], Usage: reason, Hidden: true}
	}
	return &Bool{Name: all[0], Aliases: all[1:], Usage: reason, Hidden: true}
}
