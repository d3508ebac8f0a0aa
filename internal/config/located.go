package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Located is a part of the configuration that another package parses: the data as written, and
// its position. Aliases and merge keys are resolved, keys in a map are unique, and there are no
// custom tags, so its reader meets only scalars, sequences and mappings. The zero value is a
// setting that is absent.
type Located struct {
	// File is the file with the setting, or with its larger part if several drop-ins were
	// merged.
	File string
	// Node is the value; nil if the setting is absent or empty. It must not be changed.
	Node *yaml.Node

	key    string
	origin map[*yaml.Node]string // the file of each node, where files were merged
}

// Present reports whether the setting exists and has a value.
func (l Located) Present() bool { return l.Node != nil }

// FileOf returns the file that n, a node of l, comes from.
func (l Located) FileOf(n *yaml.Node) string {
	if f, ok := l.origin[n]; ok {
		return f
	}
	return l.File
}

// Where returns the position of n, a node of l, as file:line.
func (l Located) Where(n *yaml.Node) string { return fmt.Sprintf("%s:%d", l.FileOf(n), n.Line) }

// At puts the position of n in front of err; a nil n means the whole setting.
func (l Located) At(n *yaml.Node, err error) *Error {
	if n == nil {
		n = l.Node
	}
	e := &Error{File: l.FileOf(n), Key: l.key, Err: err}
	if n != nil {
		e.Line, e.Column = n.Line, n.Column
	}
	return e
}

// Value returns the setting as plain data: nil, bool, string, int64, *big.Int,
// float64, []any and map[string]any. Words have the meaning that YAML 1.1 gives
// them.
func (l Located) Value() any { return yamlfile.Value(l.Node) }

// ReadRules reads a file that a setting names, with the same checks as for a configuration
// file: no other user may be able to write it, and its content is resolved as described at
// Located. An empty file has no Node.
func ReadRules(path string) (Located, error) {
	text, err := readFile(path, true)
	if err != nil {
		return Located{}, err
	}
	entries, err := parse(path, text)
	if err != nil || len(entries) == 0 {
		return Located{File: path}, err
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: entries[0].key.Line, Column: entries[0].key.Column}
	for _, e := range entries {
		n.Content = append(n.Content, e.key, e.value)
	}
	return Located{File: path, Node: n}, nil
}

// CheckProgram returns an error for a program that a daemon should not run: a relative path, a
// file that is not executable, or one that another user could have written.
func CheckProgram(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return salt.WithHint(fmt.Errorf("%s is not a program: it is %s", path, programKind(info.Mode())), "chmod +x "+path)
	}
	if err := checkInfo(path, info); err != nil {
		return salt.WithHint(fmt.Errorf("%s: %w", path, err), salt.Hint(err))
	}
	return nil
}

func programKind(mode fs.FileMode) string {
	if mode.IsRegular() {
		return "not executable"
	}
	return describe(mode)
}
