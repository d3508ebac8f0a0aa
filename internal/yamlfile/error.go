// Package yamlfile is the one reader of YAML files that people write: configuration, grains,
// pillar and what settings name. It resolves aliases, refuses what is not data, names the
// place of each mistake, and gives scalars the meaning that Salt gives them (YAML 1.1, where
// yes is true, 010 is ten and a date is text), so that a word means the same in every file.
//
// It knows no settings: what a file may hold is for whoever reads it.
package yamlfile

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Error is a mistake in a file, with its place.
type Error struct {
	File   string // or what stands for one, such as "command line"
	Line   int    // counted from 1; 0 when the whole file is meant
	Column int    // counted from 1 in characters; 0 when it is not known
	Key    string // the setting, with dots between the levels; "" for none
	Err    error
}

// Error returns the mistake with its place in front.
func (e *Error) Error() string {
	return Place(e.File, e.Line, e.Column, e.Key) + e.Err.Error()
}

// Unwrap returns the mistake without its place.
func (e *Error) Unwrap() error { return e.Err }

// Is says that it is a mistake, see ErrMistake.
func (e *Error) Is(target error) bool { return target == ErrMistake }

// ErrMistake is what every Error is: what a person has written must be mended, and to
// try again changes nothing.
var ErrMistake = errors.New("a mistake in the configuration")

// Place writes file:line:column: key: leaving out what is not known.
func Place(file string, line, column int, key string) string {
	s := file
	if line > 0 {
		s += fmt.Sprintf(":%d", line)
		if column > 0 {
			s += fmt.Sprintf(":%d", column)
		}
	}
	if s != "" {
		s += ": "
	}
	if key != "" {
		s += key + ": "
	}
	return s
}

// WrongKind says what was found where something else was wanted.
func WrongKind(n *yaml.Node, want string) error {
	found := n.Value
	switch {
	case n.Kind == yaml.MappingNode:
		found = "a map"
	case n.Kind == yaml.SequenceNode:
		found = "a list"
	case IsNull(n):
		found = "nothing"
	case n.Style&Quoted != 0 || found == "" || len(found) > 64:
		found = fmt.Sprintf("the text %q", Shorten(n.Value))
	}
	return fmt.Errorf("%s stands where %s is wanted", found, want)
}

// Shorten keeps a value in a message to a readable length.
func Shorten(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "..."
	}
	return s
}
