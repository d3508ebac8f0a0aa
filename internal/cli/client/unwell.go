package client

import (
	"fmt"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/logging"
)

// Level is the result of a check, and its exit code for Nagios and similar programs.
type Level int

// The levels.
const (
	LevelOK Level = iota
	LevelWarning
	LevelCritical
	LevelUnknown
)

// Checked prints the result of a check as one line, and returns its exit code as an error.
func Checked(env *cli.Env, level Level, text string) error {
	word := [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[level]
	if _, err := fmt.Fprintf(env.Stdout, "%s: %s\n", word, logging.Escape(text)); err != nil {
		return err
	}
	return cli.Exit(int(level))
}

// Unwell is Checked for a check that failed: a daemon that does not answer is critical, any other
// error is unknown.
func Unwell(env *cli.Env, err error) error {
	if cli.Code(err) == cli.Unavailable {
		return Checked(env, LevelCritical, err.Error())
	}
	return Checked(env, LevelUnknown, err.Error())
}
