package acl

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
)

// Setting is one access setting as package config returns it: scalars, sequences and mappings,
// with aliases resolved. Without a Node it is not set.
type Setting struct {
	Key  string // its name: publisher_acl
	Node *yaml.Node
	File func(*yaml.Node) string // the file of a node below Node; nil if it is not known
}

// ParseSetting reads a setting from YAML without aliases. Errors name file as its file.
func ParseSetting(key, text, file string) (Setting, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return Setting{}, fmt.Errorf("%s: %s: %w", file, key, err)
	}
	if len(doc.Content) == 0 {
		return Setting{}, fmt.Errorf("%s: %s: it is empty", file, key)
	}
	return Setting{Key: key, Node: doc.Content[0], File: func(*yaml.Node) string { return file }}, nil
}

// Error is a mistake in a setting, with its file and line.
type Error struct {
	File         string
	Line, Column int
	Key          string // the path of keys to the mistake: publisher_acl: fred: web*
	Err          error
}

// Error returns the mistake, with file and line in front.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s: %v", e.File, e.Line, e.Column, e.Key, e.Err)
}

// Unwrap returns the mistake without file and line.
func (e *Error) Unwrap() error { return e.Err }

// Warning is something that is valid but probably not meant.
type Warning struct {
	Where  string // file:line
	Column int
	Key    string // the path of keys: publisher_acl: fred: web*
	Text   string
	// Dead is set if the rule can never have an effect.
	Dead bool
}

// maxErrors is how many mistakes are reported at once.
const maxErrors = 20

// at is a node with the path of keys that leads to it.
type at struct {
	*yaml.Node
	file func(*yaml.Node) string
	path []string
}

// root is the setting itself.
func (s Setting) root() at { return at{Node: s.Node, file: s.File, path: []string{s.Key}} }

// to returns the node n below a; key is "" for an item of a list.
func (a at) to(n *yaml.Node, key string) at {
	path := a.path
	if key != "" {
		path = append(slices.Clip(path), key)
	}
	return at{Node: n, file: a.file, path: path}
}

func (a at) fileName() string {
	if a.file == nil {
		return ""
	}
	return a.file(a.Node)
}

func (a at) where() string { return fmt.Sprintf("%s:%d", a.fileName(), a.Line) }

func (a at) key() string { return strings.Join(a.path, ": ") }

// isText reports whether the node is a scalar that Salt also reads as text: not a number (a
// date counts as text), and not one of the words of YAML 1.1 for true, false and null.
func (a at) isText() bool {
	if a.Kind != yaml.ScalarNode {
		return false
	}
	if a.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return true
	}
	tag := a.ShortTag()
	return (tag == "!!str" || tag == "!!timestamp") && !slices.Contains([]string{"yes", "no", "on", "off"}, strings.ToLower(a.Value))
}

func (a at) isNull() bool {
	return a.Kind == yaml.ScalarNode && !a.isText() && a.ShortTag() == "!!null"
}

// shape names what the node is, for messages.
func (a at) shape() string {
	switch {
	case a.isNull():
		return "nothing"
	case a.isText():
		return fmt.Sprintf("the text %.60q", a.Value)
	case a.Kind == yaml.ScalarNode:
		return fmt.Sprintf("%.60s, which is not text", a.Value)
	case a.Kind == yaml.SequenceNode:
		return "a list"
	case a.Kind == yaml.MappingNode:
		return "a mapping"
	}
	return "something else"
}

// parser reads settings and collects the mistakes in them.
type parser struct {
	targets  targets
	errs     []error
	more     int // mistakes beyond maxErrors
	warnings []Warning
	known    map[Scope][]salt.Function // the functions that exist, by what runs them
	added    []string
	lone     bool // a single text is a list of one

	does    Functions // what functions of the master do; nil if that is not known
	minions bool      // the rules are for minions
}

func (p *parser) fail(a at, err error) {
	if len(p.errs) == maxErrors {
		p.more++
		return
	}
	p.errs = append(p.errs, &Error{File: a.fileName(), Line: a.Line, Column: a.Column, Key: a.key(), Err: err})
}

// warn records what is valid but probably not meant. dead means that it has no effect at all.
func (p *parser) warn(a at, dead bool, format string, args ...any) {
	p.warnings = append(p.warnings, Warning{Where: a.where(), Column: a.Column, Key: a.key(), Text: fmt.Sprintf(format, args...), Dead: dead})
}

func (p *parser) err() error {
	if p.more > 0 {
		p.errs = append(p.errs, fmt.Errorf("and %d mistakes more", p.more))
	}
	return errors.Join(p.errs...)
}

// pairs iterates over the keys and values of a mapping. A node of another kind is a mistake;
// what says what is expected instead. A key that is not text is also a mistake and is skipped.
func (p *parser) pairs(a at, what string) iter.Seq2[at, at] {
	return func(yield func(at, at) bool) {
		if a.Kind != yaml.MappingNode {
			p.fail(a, fmt.Errorf("%s is a mapping, but this is %s", what, a.shape()))
			return
		}
		for i := 0; i+1 < len(a.Content); i += 2 {
			k := a.to(a.Content[i], "")
			if !k.isText() {
				p.fail(k, errNotText(k))
				continue
			}
			if !yield(k, a.to(a.Content[i+1], k.Value)) {
				return
			}
		}
	}
}

// items iterates over a list. A node of another kind is a mistake.
func (p *parser) items(a at, what string) iter.Seq[at] {
	return func(yield func(at) bool) {
		if p.lone && a.isText() {
			yield(a)
			return
		}
		if a.Kind != yaml.SequenceNode {
			p.fail(a, errNoList(a, what))
			return
		}
		for _, n := range a.Content {
			if !yield(a.to(n, "")) {
				return
			}
		}
	}
}

// single returns the one pair of a mapping that is an item of a list.
func (p *parser) single(a at) (key at, value at, ok bool) {
	if len(a.Content) != 2 {
		p.fail(a, errNotSingle(a))
		return key, value, false
	}
	key = a.to(a.Content[0], "")
	if !key.isText() {
		p.fail(key, errNotText(key))
		return key, value, false
	}
	return key, a.to(a.Content[1], key.Value), true
}
