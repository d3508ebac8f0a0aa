package cli

import (
	"cmp"
	"fmt"
	"log/slog"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/logging"
)

// LogSettings are the log settings of the configuration. The options of the command line take
// precedence.
type LogSettings struct {
	Level     string // log_level; "" means warning
	File      string // log_file; "" means none
	FileLevel string // log_level_logfile; "" means as Level
	Format    string // log_format; "" means text

	// FileRequired makes it an error if the log file cannot be written, as for a daemon.
	// Without it, the program continues with a warning.
	FileRequired bool
}

// OpenLog opens the log of the program on Stderr and, if a file is named, in that file. The
// caller closes it.
func (e *Env) OpenLog(opts *urcli.Context, s LogSettings) (*logging.Log, error) {
	o := logging.Options{
		Console: e.Stderr,
		Color:   e.StderrTTY && e.mayColor(opts),
		File:    cmp.Or(opts.String("log-file"), s.File),
		Name:    e.Name,
		JSON:    s.Format == "json",
	}
	var err error
	level := cmp.Or(opts.String("log-level"), s.Level, "warning")
	if o.ConsoleLevel, err = logging.ParseLevel(level); err != nil {
		return nil, err
	}
	if e.quiet && opts.String("log-level") == "" { // it does not affect the file
		o.ConsoleLevel = max(o.ConsoleLevel, slog.LevelError)
	}
	if o.FileLevel, err = logging.ParseLevel(cmp.Or(opts.String("log-file-level"), s.FileLevel, level)); err != nil {
		return nil, err
	}
	log, err := logging.New(o)
	if err != nil && !s.FileRequired {
		e.Warn(fmt.Errorf("%w; going on without", err))
		o.File = ""
		return logging.New(o)
	}
	return log, err
}

// Debug logs details of what a tool does, for users of --log-level or --log-file-level. If the
// log cannot be opened, the line is dropped.
func (e *Env) Debug(opts *urcli.Context, text string, args ...any) {
	if opts.String("log-level") == "" && opts.String("log-file-level") == "" {
		return
	}
	log, err := e.OpenLog(opts, LogSettings{})
	if err != nil {
		return
	}
	defer log.Close()
	log.Debug(text, args...)
}

// checkLevels refuses a log level on the command line that does not exist.
func checkLevels(opts *urcli.Context) error {
	for _, name := range []string{"log-level", "log-file-level"} {
		if value := opts.String(name); value != "" {
			if _, err := logging.ParseLevel(value); err != nil {
				return Fail(Usage, fmt.Errorf("option --%s: %w", name, err))
			}
		}
	}
	return nil
}
