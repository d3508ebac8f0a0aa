package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/output"
)

// OutputForm returns what output.New and output.NewWriter take: the name that
// --out gives, else byDefault, and the options that the command line and the
// terminal decide. A name on the command line is known to exist.
func (e *Env) OutputForm(opts *urcli.Context, byDefault string) (name string, o output.Options) {
	o = output.Options{
		Color:    e.Color(opts),
		Static:   opts.Bool("static"),
		Terminal: e.StdoutTTY && opts.String("out-file") == "",
	}
	if opts.IsSet("out-indent") {
		indent := opts.Int("out-indent")
		o.Indent = &indent
	}
	return cmp.Or(opts.String("out"), byDefault), o
}

// checkOutput refuses an unknown form before any work is done for it. (Salt does
// the work and prints it in another form.)
func checkOutput(opts *urcli.Context) error {
	if _, err := output.New(opts.String("out"), output.Options{}); err != nil {
		return Fail(Usage, fmt.Errorf("option --out: %w", err))
	}
	return nil
}

// Color says whether results on Stdout are to be coloured: when it is a terminal
// and nobody objects, or when --force-color says so.
func (e *Env) Color(opts *urcli.Context) bool {
	if opts.Bool("force-color") {
		return true
	}
	return e.StdoutTTY && opts.String("out-file") == "" && e.mayColor(opts)
}

// mayColor says whether a terminal may be coloured: not with --no-color, NO_COLOR
// (see no-color.org) or on one that calls itself dumb.
func (e *Env) mayColor(opts *urcli.Context) bool {
	return !opts.Bool("no-color") && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}

// OpenOutput returns where results go: Stdout, or the file of --out-file, which
// is replaced unless --out-file-append is given. Its mode is that of a file made
// by > in a shell. Closing Stdout does nothing.
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

// keepOpen is a stream that belongs to somebody else.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
