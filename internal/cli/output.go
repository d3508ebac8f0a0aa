package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/output"
)

// OutputForm returns the arguments for output.New and output.NewWriter: the outputter's name
// from --out, or else byDefault, and the options from the command line and the terminal. indent
// is the setting output_indent. A name on the command line has been checked.
func (e *Env) OutputForm(opts *urcli.Context, byDefault, indent string) (name string, o output.Options) {
	o = output.Options{
		Color:    e.Color(opts),
		Static:   opts.Bool("static"),
		Terminal: e.StdoutTTY && opts.String("out-file") == "",
	}
	width, err := strconv.Atoi(indent)
	switch {
	case opts.IsSet("out-indent"):
		width = opts.Int("out-indent")
		o.Indent = &width
	case err == nil:
		o.Indent = &width
	}
	o.Sorted = indent == "pretty"
	return cmp.Or(opts.String("out"), byDefault), o
}

// checkOutput refuses an unknown outputter before any work is done. (Salt does the work and
// prints it with another one.)
func checkOutput(opts *urcli.Context) error {
	if _, err := output.New(opts.String("out"), output.Options{}); err != nil {
		return Fail(Usage, fmt.Errorf("option --out: %w", err))
	}
	return nil
}

// Color reports whether results on Stdout are coloured: if it is a terminal and nothing forbids
// it, or with --force-color.
func (e *Env) Color(opts *urcli.Context) bool {
	if opts.Bool("force-color") {
		return true
	}
	return e.StdoutTTY && opts.String("out-file") == "" && e.mayColor(opts)
}

// mayColor reports whether a terminal may be coloured: not with --no-color, not with NO_COLOR
// (see no-color.org), and not with TERM=dumb.
func (e *Env) mayColor(opts *urcli.Context) bool {
	return !opts.Bool("no-color") && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}

// OpenOutput returns where results go: Stdout, or the file of --out-file, which is replaced
// unless --out-file-append is given. Its mode is that of a file made by > in a shell. Closing
// Stdout has no effect.
func (e *Env) OpenOutput(opts *urcli.Context) (io.WriteCloser, error) {
	path := opts.String("out-file")
	if path == "" {
		return keepOpen{e.Stdout}, nil
	}
	how := os.O_TRUNC
	if opts.Bool("out-file-append") {
		how = os.O_APPEND
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|how, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open output file: %w", err)
	}
	return f, nil
}

// Results is where the results of a program go, and their form.
type Results struct {
	*output.Writer
	File    io.WriteCloser // as OpenOutput returns it
	Form    string         // the name of the outputter
	Options output.Options
}

// OpenResults opens the output in the form that OutputForm returns. The caller closes the Writer,
// which may print the rest, and then File. With --quiet no result is printed.
func (e *Env) OpenResults(opts *urcli.Context, byDefault, indent string) (*Results, error) {
	form, o := e.OutputForm(opts, byDefault, indent)
	if opts.Bool("quiet") {
		form = "quiet"
	}
	file, err := e.OpenOutput(opts)
	if err != nil {
		return nil, err
	}
	w, err := output.NewWriter(file, form, o)
	if err != nil {
		return nil, Fail(Usage, errors.Join(err, file.Close()))
	}
	return &Results{w, file, form, o}, nil
}

// keepOpen is a stream that is not ours to close.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
