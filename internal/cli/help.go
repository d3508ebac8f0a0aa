package cli

import (
	"fmt"
	"slices"
	"strings"

	urcli "github.com/urfave/cli/v2"
)

// The layout of -h: options in a column, their explanations beside it.
const (
	helpColumn = 26
	helpWidth  = 80 // every terminal has it
)

// Help returns the text of "NAME -h": synopsis, summary, the options in groups, examples.
func Help(name string, spec Spec) string {
	var b strings.Builder
	lead := "Usage: "
	for _, form := range spec.Synopsis {
		fmt.Fprintf(&b, "%s%s %s\n", lead, name, form)
		lead = "       "
	}
	if spec.Summary != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(wrap(spec.Summary, helpWidth), "\n"))
	}
	flags := slices.DeleteFunc(allFlags(spec), func(f urcli.Flag) bool { return !isVisible(f) })
	for _, group := range groups(flags) {
		fmt.Fprintf(&b, "\n%s:\n", group)
		for _, f := range flags {
			if category(f) == group {
				b.WriteString(helpLine(f))
			}
		}
	}
	if len(spec.Examples) > 0 {
		fmt.Fprintf(&b, "\nExamples:\n  %s\n", strings.Join(spec.Examples, "\n  "))
	}
	return b.String()
}

// groups returns the headings of flags in the order of their first appearance.
func groups(flags []urcli.Flag) []string {
	var headings []string
	for _, f := range flags {
		if c := category(f); !slices.Contains(headings, c) {
			headings = append(headings, c)
		}
	}
	return headings
}

// category returns the heading for f.
func category(f urcli.Flag) string {
	if c, ok := f.(urcli.CategorizableFlag); ok && c.GetCategory() != "" {
		return c.GetCategory()
	}
	return "Options"
}

// helpLine returns the lines about one option: "  -t, --timeout=N   wait ...".
func helpLine(f urcli.Flag) string {
	usage := ""
	if documented, ok := f.(urcli.DocGenerationFlag); ok {
		usage = documented.GetUsage()
	}
	placeholder, usage := placeholder(usage)
	left := "  " + spelling(f)
	if takesValue(f) {
		left += "=" + placeholder
	}
	var b strings.Builder
	if len(left) > helpColumn-2 {
		fmt.Fprintf(&b, "%s\n", left)
		left = ""
	}
	for _, line := range wrap(usage, helpWidth-helpColumn) {
		fmt.Fprintf(&b, "%-*s%s\n", helpColumn, left, line)
		left = ""
	}
	return b.String()
}

// spelling returns the first short and the first long name of f. Other names are only in the
// man page.
func spelling(f urcli.Flag) string {
	short := "    "
	for _, name := range f.Names() {
		if len(name) == 1 {
			short = "-" + name + ", "
			break
		}
	}
	if long := option(f); strings.HasPrefix(long, "--") {
		return short + long
	}
	return strings.TrimSuffix(short, ", ")
}

// placeholder returns the word in backquotes in usage, and usage without the quotes.
func placeholder(usage string) (word, plain string) {
	before, rest, ok := strings.Cut(usage, "`")
	word, after, closed := strings.Cut(rest, "`")
	if !ok || !closed {
		return "VALUE", usage
	}
	return word, before + word + after
}

// wrap breaks text at blanks into lines of at most width bytes; a longer word
// has a line of its own. Empty text is one empty line.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
