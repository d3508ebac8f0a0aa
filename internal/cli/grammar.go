package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/salt"
)

// grammar knows the options of one program by each of their names, without the
// leading hyphens.
//
// It reads a command line as Salt does, where options stand anywhere among the
// other words, and writes it as urfave/cli wants it, options first:
//
//	salt web1 -vt5 test.ping --out json   ->   --verbose --timeout=5 --out=json -- web1 test.ping
type grammar map[string]urcli.Flag

func newGrammar(flags []urcli.Flag) grammar {
	g := make(grammar, 2*len(flags))
	for _, f := range flags {
		for _, name := range names(f) {
			g[name] = f
		}
	}
	return g
}

// normalize returns args in the form that urfave/cli reads: each option by its full name,
// values attached with "=", then "--", then the other words in their order. It accepts the
// following; everything else is a usage error.
//
//   - --name, --name=value, --name value, and any beginning of a long name that
//     fits one option only
//   - -t5, -t=5, -t 5, and clusters such as -yq and -vt5
//   - "-" and negative numbers are words, not options
//   - everything after "--" is a word, not an option
//
// A value in a word of its own may begin with a hyphen unless it is the name of
// an option: "-a -y" has lost the value of -a.
func (g grammar) normalize(args []string) ([]string, error) {
	var options, words []string
	for len(args) > 0 {
		word := args[0]
		if word == "--" {
			words = append(words, args[1:]...)
			break
		}
		if !g.isOption(word) {
			words = append(words, word)
			args = args[1:]
			continue
		}
		read, used, err := g.read(word, args[1:])
		if err != nil {
			return nil, Fail(Usage, err)
		}
		options = append(options, read...)
		args = args[1+used:]
	}
	return append(append(options, "--"), words...), nil
}

// given returns the options in args, which are normal.
func (g grammar) given(args []string) map[urcli.Flag]bool {
	flags := map[urcli.Flag]bool{}
	for _, a := range args[:slices.Index(args, "--")] {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		flags[g[name]] = true
	}
	return flags
}

// isOption reports whether word is to be read as an option, known or not.
func (g grammar) isOption(word string) bool {
	if len(word) < 2 || word[0] != '-' {
		return false
	}
	digits := strings.TrimPrefix(word[1:], ".")
	isNumber := digits != "" && '0' <= digits[0] && digits[0] <= '9'
	return !isNumber || g[word[1:2]] != nil
}

// read reads the option or cluster in word, whose value may be the first of
// next. It returns the normal form and how many words of next it used.
func (g grammar) read(word string, next []string) (options []string, used int, err error) {
	if long, ok := strings.CutPrefix(word, "--"); ok {
		return g.readLong(long, next)
	}
	return g.readCluster(word, next)
}

// readLong reads NAME or NAME=VALUE, where NAME may be abbreviated.
func (g grammar) readLong(text string, next []string) (options []string, used int, err error) {
	name, value, attached := strings.Cut(text, "=")
	f, err := g.find(name, text)
	if err != nil {
		return nil, 0, err
	}
	shown := "--" + name
	switch {
	case !takesValue(f) && attached && isVisible(f):
		return nil, 0, fmt.Errorf("%s option does not take a value", shown)
	case !takesValue(f): // a hidden one has no effect or is refused, with a value as without
		return []string{option(f)}, 0, nil
	case !attached:
		if value, err = g.detached(shown, next); err != nil {
			return nil, 0, err
		}
		used = 1
	}
	return []string{option(f) + "=" + value}, used, check(shown, f, value)
}

// readCluster reads one or more short options after one hyphen. The first that takes a value
// gets the rest of the word, or the next word if nothing is left.
func (g grammar) readCluster(word string, next []string) (options []string, used int, err error) {
	for i, letter := range word[1:] {
		shown := "-" + string(letter)
		f := g[string(letter)]
		if f == nil {
			return nil, 0, g.unknown(shown, word)
		}
		rest := word[i+2:] // the names of options are ASCII
		if !takesValue(f) {
			if strings.HasPrefix(rest, "=") {
				return nil, 0, fmt.Errorf("%s option does not take a value", shown)
			}
			options = append(options, option(f))
			continue
		}
		value := strings.TrimPrefix(rest, "=")
		if rest == "" {
			if value, err = g.detached(shown, next); err != nil {
				return nil, 0, err
			}
			used = 1
		}
		return append(options, option(f)+"="+value), used, check(shown, f, value)
	}
	return options, 0, nil
}

// detached returns the value of an option from the next word.
func (g grammar) detached(shown string, next []string) (string, error) {
	if len(next) == 0 {
		return "", fmt.Errorf("%s option requires an argument", shown)
	}
	value := next[0]
	if value == "--" || value != "-" && strings.HasPrefix(value, "-") && g[strings.TrimLeft(value, "-")] != nil {
		err := fmt.Errorf("%s option requires an argument", shown)
		return "", salt.WithHint(err, fmt.Sprintf("%s is an option itself; if it is meant as the value, write %s=%s", value, shown, value))
	}
	return value, nil
}

// find returns the option with this long name, or the only one that begins with it. "--" + text
// is the word it was in.
func (g grammar) find(name, text string) (urcli.Flag, error) {
	if f := g[name]; f != nil && len(name) > 1 {
		return f, nil
	}
	var found []string
	for long, f := range g {
		if len(long) > 1 && strings.HasPrefix(long, name) {
			found = append(found, option(f))
		}
	}
	slices.Sort(found)
	found = slices.Compact(found) // two names of one option are not ambiguous
	switch {
	case len(found) == 0 || name == "":
		return nil, g.unknown("--"+name, "--"+text)
	case len(found) > 1:
		return nil, fmt.Errorf("ambiguous option: --%s (%s?)", name, strings.Join(found, ", "))
	}
	return g[found[0][2:]], nil
}

// unknown is the error for an unknown option in word.
func (g grammar) unknown(shown, word string) error {
	err := fmt.Errorf("no such option: %s", shown)
	hint := "--help shows all options"
	if near := g.nearest(shown); near != "" {
		hint = "did you mean " + near + "?"
	}
	return salt.WithHint(err, fmt.Sprintf("%s\nto pass %s as an argument, put -- before it", hint, word))
}

// nearest returns the option, with hyphens, that was most likely meant. For a single letter
// only the other case is suggested.
func (g grammar) nearest(shown string) string {
	if letter, short := strings.CutPrefix(shown, "-"); short && len(letter) == 1 {
		for _, other := range []string{strings.ToLower(letter), strings.ToUpper(letter)} {
			if g[other] != nil {
				return "-" + other
			}
		}
		return ""
	}
	var long []string
	for name, f := range g {
		if len(name) > 1 && isVisible(f) {
			long = append(long, name)
		}
	}
	if near := Nearest(strings.TrimLeft(shown, "-"), long); near != "" {
		return "--" + near
	}
	return ""
}

// check refuses a value of the wrong type for its option, with better messages than those of
// package flag.
func check(shown string, f urcli.Flag, value string) error {
	var kind string
	var err error
	switch f.(type) {
	case *urcli.IntFlag, *urcli.Int64Flag, *urcli.IntSliceFlag, *urcli.Int64SliceFlag:
		kind = "integer"
		_, err = strconv.ParseInt(value, 0, 64)
	case *urcli.UintFlag, *urcli.Uint64Flag:
		kind = "unsigned integer"
		_, err = strconv.ParseUint(value, 0, 64)
	case *urcli.Float64Flag:
		kind = "number"
		_, err = strconv.ParseFloat(value, 64)
	case *urcli.DurationFlag:
		kind = "duration"
		_, err = time.ParseDuration(value)
	}
	if err != nil {
		return fmt.Errorf("option %s: invalid %s value: %q", shown, kind, value)
	}
	return nil
}

// option returns the normal spelling of f: its first long name.
func option(f urcli.Flag) string {
	all := names(f)
	for _, name := range all {
		if len(name) > 1 {
			return "--" + name
		}
	}
	return "-" + all[0]
}

// names is f.Names() for our types of options; Names applies a regular expression to each name,
// which is slow.
func names(f urcli.Flag) []string {
	switch f := f.(type) {
	case *urcli.BoolFlag:
		return append([]string{f.Name}, f.Aliases...)
	case *urcli.StringFlag:
		return append([]string{f.Name}, f.Aliases...)
	case *urcli.IntFlag:
		return append([]string{f.Name}, f.Aliases...)
	}
	return f.Names()
}

// takesValue reports whether f needs a value; a switch does not.
func takesValue(f urcli.Flag) bool {
	documented, ok := f.(urcli.DocGenerationFlag)
	return ok && documented.TakesValue()
}

// isVisible reports whether -h lists f.
func isVisible(f urcli.Flag) bool {
	visible, ok := f.(urcli.VisibleFlag)
	return !ok || visible.IsVisible()
}
