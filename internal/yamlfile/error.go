// Package yamlfile is the only parser of YAML files that people write: configuration, grains,
// pillar and files named in settings. It resolves aliases, refuses what is not data, reports the
// position of each error, and gives scalars the meaning that Salt gives them (YAML 1.1, where yes
// is true, 010 is ten and a date is text), so that a word means the same in every file.
//
// It knows no settings: its callers define what a file may contain.
package yamlfile

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Error is an error in a file, with its position.
type Error struct {
	File   string // or a name such as "command line"
	Line   int    // from 1; 0 if it is about the whole file
	Column int    // in characters, from 1; 0 if unknown
	Key    string // the setting, levels separated by dots; "" for none
	Err    error
}

// Error returns the position and the error.
func (e *Error) Error() string {
	return Place(e.File, e.Line, e.Column, e.Key) + e.Err.Error()
}

// Unwrap returns the error without its position.
func (e *Error) Unwrap() error { return e.Err }

// Is reports that every Error is an ErrMistake.
func (e *Error) Is(target error) bool { return target == ErrMistake }

// ErrMistake matches every Error: a person must correct the file, and a retry is useless.
var ErrMistake = errors.New("a mistake in the configuration")

// Place returns file:line:column: key: without the unknown parts.
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

// WrongKind returns an error that says what was found and what was expected.
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

// Shorten limits a value in a message to a readable length.
func Shorten(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "..."
	}
	return s
}
