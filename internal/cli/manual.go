package cli

import (
	"fmt"
	"slices"
	"strings"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/version"
)

// Manual returns the page of section 1 of the manual for the program, in the language of
// man(7): what Help says, with all names of each option and with the exit codes. It is
// what --man prints, and what packages install.
func Manual(name string, spec Spec) string {
	var b strings.Builder
	page := strings.ReplaceAll(name, " ", "-")
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s %s\n", roffWord(strings.ToUpper(page)), roffWord(version.Name+" "+version.Release), roffWord("Manual of "+version.Name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(page), roff(brief(spec.Summary)))
	b.WriteString(".SH SYNOPSIS\n")
	for i, form := range spec.Synopsis {
		if i > 0 {
			b.WriteString(".br\n")
		}
		fmt.Fprintf(&b, "\\fB%s\\fR %s\n", roff(name), roff(form))
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(spec.Summary))
	manualCommands(&b, name, spec)
	manualOptions(&b, spec)
	manualExits(&b)
	if len(spec.Examples) > 0 {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(strings.Join(spec.Examples, "\n")))
	}
	b.WriteString(".SH SEE ALSO\n" + roff(seeAlso(page)) + "\n")
	return b.String()
}

// manualCommands lists the commands of a program that has commands: each has its own page.
func manualCommands(b *strings.Builder, name string, spec Spec) {
	if len(spec.Commands) == 0 {
		return
	}
	b.WriteString(".SH COMMANDS\n")
	for _, c := range spec.Commands {
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s; see %s(1).\n", roff(name+" "+c.Name), roff(brief(c.Summary)), roff(strings.ReplaceAll(name, " ", "-")+"-"+c.Name))
	}
}

// brief is the first sentence of a summary, without its full stop.
func brief(summary string) string {
	first, _, _ := strings.Cut(summary, ". ")
	return strings.TrimSuffix(first, ".")
}

func manualOptions(b *strings.Builder, spec Spec) {
	b.WriteString(".SH OPTIONS\n")
	flags := slices.DeleteFunc(allFlags(spec), func(f urcli.Flag) bool { return !isVisible(f) })
	for _, group := range groups(flags) {
		fmt.Fprintf(b, ".SS %s\n", roff(group))
		for _, f := range flags {
			if category(f) == group {
				manualOption(b, f)
			}
		}
	}
}

// manualOption writes all names of an option, its value, and its description.
func manualOption(b *strings.Builder, f urcli.Flag) {
	usage := ""
	if documented, ok := f.(urcli.DocGenerationFlag); ok {
		usage = documented.GetUsage()
	}
	word, usage := placeholder(usage)
	var names []string
	for _, n := range f.Names() {
		switch {
		case len(n) == 1 && takesValue(f):
			names = append(names, fmt.Sprintf(`\fB%s\fR \fI%s\fR`, roff("-"+n), roff(word)))
		case len(n) == 1:
			names = append(names, fmt.Sprintf(`\fB%s\fR`, roff("-"+n)))
		case takesValue(f):
			names = append(names, fmt.Sprintf(`\fB%s\fR=\fI%s\fR`, roff("--"+n), roff(word)))
		default:
			names = append(names, fmt.Sprintf(`\fB%s\fR`, roff("--"+n)))
		}
	}
	fmt.Fprintf(b, ".TP\n%s\n%s\n", strings.Join(names, ", "), roff(usage))
}

// exits are the exit codes in words, in the order of the README's table.
var exits = []struct {
	code    string
	meaning string
}{
	{"0", "every return succeeded"},
	{"1", "some function failed, or the program could not do its work"},
	{"2", "no minion matched"},
	{"3", "some minion did not answer, or is not connected"},
	{"64", "wrong command line, a mistake in the configuration, or a start or a job that would be refused again"},
	{"69", "no daemon or NATS server is reached, or nothing can be stored at the moment"},
	{"77", "not permitted, or a refused key"},
	{"130, 141, 143", "ended by Ctrl-C, by a reader that went away, by SIGTERM"},
}

func manualExits(b *strings.Builder) {
	b.WriteString(".SH EXIT STATUS\n")
	for _, e := range exits {
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", e.code, roff(e.meaning))
	}
}

// seeAlso returns the pages of the other programs.
func seeAlso(page string) string {
	var others []string
	for _, p := range []string{"salt", "salt-call", "salt-cp", "salt-event", "salt-key", "salt-master", "salt-minion", "salt-run"} {
		if p != page {
			others = append(others, p+"(1)")
		}
	}
	return strings.Join(others, ", ")
}

// roff escapes text for a page: backslashes, hyphens (they would become typographic ones that
// cannot be copied into a shell), and line starts that would be requests.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// roffWord returns text as one argument of a request.
func roffWord(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `""`) + `"` }
