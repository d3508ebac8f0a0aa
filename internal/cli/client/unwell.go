package client

import (
	"fmt"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/logging"
)

// Level is the result of a check, and the exit code that Nagios and its kin want for it.
type Level int

// The levels.
const (
	LevelOK Level = iota
	LevelWarning
	LevelCritical
	LevelUnknown
)

// Checked tells the result of a check in one line, and by the exit code.
func Checked(env *cli.Env, level Level, text string) error {
	word := [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[level]
	if _, err := fmt.Fprintf(env.Stdout, "%s: %s\n", word, logging.Escape(text)); err != nil {
		return err
	}
	return cli.Exit(int(level))
}

// Unwell is Checked where nothing could be found out: a daemon that does not answer is
// critical, all else is not known.
func Unwell(env *cli.Env, err error) error {
	if cli.Code(err) == cli.Unavailable {
		return Checked(env, LevelCritical, err.Error())
	}
	return Checked(env, LevelUnknown, err.Error())
}
