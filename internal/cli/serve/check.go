package serve

import (
	"fmt"
	"io"
	"slices"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// Checked is the result of checking a configuration.
type Checked struct {
	Err      error // all errors
	Notices  []config.Notice
	Warnings []config.Place // suspicious settings that are not errors
}

// Check prints the result, one line for each item, in the format of compilers, so that editors can
// jump to the position. With errors the exit code is that of a start.
func Check(env *cli.Env, c Checked) error {
	mistakes := config.Mistakes(c.Err)
	for _, err := range mistakes {
		finding(env.Stdout, "error", config.PlaceOf(err))
		if hint := salt.Hint(err); hint != "" {
			fmt.Fprintf(env.Stdout, "  hint: %s\n", hint)
		}
	}
	for _, n := range c.Notices {
		p := config.Place{Where: n.File, Key: n.Key, Text: n.Text}
		if n.Line > 0 {
			p.Where, p.Column = fmt.Sprintf("%s:%d", n.File, n.Line), n.Column
		}
		finding(env.Stdout, "warning", p)
	}
	for _, p := range c.Warnings {
		finding(env.Stdout, "warning", p)
	}
	if len(mistakes) == 0 {
		return nil
	}
	denied := func(err error) bool { return cli.Code(err) == cli.NoPermission }
	if denied(Failed(c.Err)) || slices.ContainsFunc(mistakes, denied) {
		return cli.Exit(cli.NoPermission)
	}
	return cli.Exit(cli.Usage)
}

func finding(w io.Writer, kind string, p config.Place) {
	if p.Where != "" && p.Column > 0 {
		p.Where += fmt.Sprintf(":%d", p.Column)
	}
	for _, s := range []string{p.Where, kind, p.Key} {
		if s != "" {
			fmt.Fprintf(w, "%s: ", s)
		}
	}
	fmt.Fprintln(w, p.Text)
}
