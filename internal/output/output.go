// Package output formats what functions return as text for people and programs, in the formats of
// Salt's outputters: nested, json, yaml and so on.
//
// An Outputter formats one value. A Writer prints the returns of many minions, each as it arrives
// or all at the end. The package does not inspect the terminal or decide about colours: Options
// says so.
package output

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// ErrUnknown is wrapped by the error for an unknown outputter name.
var ErrUnknown = errors.New("no such outputter")

// Options are decided by the flags and the terminal; the zero value prints plain text to a pipe.
type Options struct {
	// Color enables colours, in the outputters that have some.
	Color bool
	// Indent is the width of a level (--out-indent), nil for the outputter's default. Below zero
	// everything is on one line. For json, yaml and pprint.
	Indent *int
	// Sorted sorts the members of maps by their keys (output_indent: pretty), which nested, pprint
	// and yaml always do. For json.
	Sorted bool
	// Static delays all returns until Close (--static).
	Static bool
	// Terminal is set if the text goes to a terminal. Data from a minion must not control it, so
	// control characters other than line break and tab are written as visible escapes, \x1b, and so
	// are bytes that are not UTF-8. To a pipe all bytes are written unchanged.
	Terminal bool
	// KeepEscapes passes the escape character in nested, key and table to a pipe (strip_colors:
	// False); otherwise a question mark replaces it.
	KeepEscapes bool
	// Margin is the number of blanks before each line of nested and key.
	Margin int
	// Failed means that the function failed: nested shows its frame in red.
	Failed bool
}

// outputters lists all outputters, sorted by name. A row has everything about one outputter: other
// code uses the row and never compares names.
var outputters = []row{
	{name: "json", format: formatJSON, Form: Form{Structured: true, Document: true}, object: true},
	{name: "jsonl", format: formatJSONLine, Form: Form{Structured: true, Document: true}, each: true},
	{name: "key", format: formatKeys},
	{name: standard, format: formatNested, Form: Form{People: true}, each: true},
	{name: "newline_values_only", format: formatValues},
	{name: "no_return", format: formatNoReturn},
	{name: "pprint", format: formatPprint, Form: Form{Structured: true}},
	{name: "quiet", format: formatQuiet},
	{name: "raw", format: formatRaw, Form: Form{Structured: true}},
	{name: "table", format: formatTable},
	{name: "txt", format: formatText},
	{name: "yaml", format: formatYAML, Form: Form{Structured: true, Document: true}},
}

// otherNames are further names that Salt accepts: text, and highstate, which formats states and
// prints other data as nested.
var otherNames = map[string]string{"text": "txt", "highstate": standard}

// standard is the default outputter.
const standard = "nested"

// row is one outputter.
type row struct {
	name   string
	format func(Options, any) (string, error)
	Form
	each   bool // several returns are several texts, not one text of all
	object bool // returns are members of one object, which begins with the first of them
}

// Form has the properties of an outputter that its users need.
type Form struct {
	People     bool // it is formatted for people, who also get messages that are not returns
	Structured bool // it keeps the structure of a value: a failure is a value, too
	Document   bool // a program reads all of it: messages that are not returns are documents too
}

// FormOf returns the form of an outputter; "" means the standard one. An unknown name has the zero
// Form.
func FormOf(name string) Form { return rowOf(name).Form }

// rowOf returns the row of that name, the zero row for none.
func rowOf(name string) row {
	name = cmp.Or(name, standard)
	if other, ok := otherNames[name]; ok {
		name = other
	}
	i := slices.IndexFunc(outputters, func(o row) bool { return o.name == name })
	if i < 0 {
		return row{}
	}
	return outputters[i]
}

// Names returns the names of all outputters, sorted.
func Names() []string {
	names := make([]string, len(outputters))
	for i, o := range outputters {
		names[i] = o.name
	}
	return names
}

// Outputter formats values. It keeps no state and may be shared.
type Outputter struct {
	name   string
	opt    Options
	format func(Options, any) (string, error)
}

// New returns the outputter with that name; "" means the standard one, nested. The error for an
// unknown name has a hint that lists the known names.
func New(name string, opt Options) (Outputter, error) {
	if o := rowOf(name); o.format != nil {
		return Outputter{o.name, opt, o.format}, nil
	}
	err := fmt.Errorf("%w: %q", ErrUnknown, name)
	return Outputter{}, salt.WithHint(err, "the outputters are "+strings.Join(Names(), ", "))
}

// Format returns the text for data, without blanks and line breaks at its end; "" if there is
// nothing to print. An error means that data contains an unsupported Go type, or is nested too
// deeply.
func (o Outputter) Format(data any) (string, error) {
	exact, err := value.Exactly(data)
	if err != nil {
		return "", fmt.Errorf("format as %s: %w", o.name, err)
	}
	text, err := o.format(o.opt, exact)
	if err != nil {
		return "", fmt.Errorf("format as %s: %w", o.name, err)
	}
	return trimRight(text), nil
}

// trimRight removes trailing characters that are white space in Python.
func trimRight(s string) string { return strings.TrimRightFunc(s, isSpace) }

// indentOr returns the width of a level, by default width.
func (o Options) indentOr(width int) int {
	if o.Indent == nil {
		return width
	}
	return *o.Indent
}

// entries returns the members of a map in the order in which they were added, as far as that is
// known.
func (o Options) entries(v any) (value.Map, bool) {
	if o.Sorted {
		return value.Sorted(v)
	}
	return value.Ordered(v)
}
