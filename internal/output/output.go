// Package output turns what functions return into text for people and programs,
// in the formats of Salt's outputters: nested, json, yaml and so on.
//
// An Outputter formats one value. A Writer prints the returns of many minions,
// each as it arrives or all at the end. The package neither decides whether
// colours are wanted nor looks at the terminal: it is told by Options.
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

// ErrUnknown is wrapped by the error for a name that is no outputter.
var ErrUnknown = errors.New("no such outputter")

// Options are what the flags and the terminal decide; the zero value prints
// plain text for a pipe.
type Options struct {
	// Color switches colours on, in the outputters that have some.
	Color bool
	// Indent is the width of a level (--out-indent), nil for that of the
	// outputter. Below zero all stands on one line. For json, yaml and pprint.
	Indent *int
	// Static holds all returns back until Close (--static).
	Static bool
	// Terminal says that a person's terminal shows the text. What a minion
	// returned must not steer it, so control characters other than line break
	// and tab are written as visible escapes, \x1b, and so are bytes that are
	// not UTF-8. To a pipe all bytes pass as they are.
	Terminal bool
	// KeepEscapes lets the escape character pass through nested, key and table
	// to a pipe (strip_colors: False); else they write a question mark for it.
	KeepEscapes bool
	// Margin is the number of blanks before each line of nested and key.
	Margin int
	// Failed says that the function failed: nested shows its frame in red.
	Failed bool
}

// outputters lists all outputters, sorted by name. A row is all that there is to say of
// one: whoever shows something asks the row, and knows no names.
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

// standard is the outputter of who names none.
const standard = "nested"

// row is one outputter.
type row struct {
	name   string
	format func(Options, any) (string, error)
	Form
	each   bool // all returns at once are one text after another, not one of them all
	object bool // returns are members of one object, which begins with the first of them
}

// Form is what those who show something need to know of an outputter.
type Form struct {
	People     bool // it is laid out for people, who are also told what is no return
	Structured bool // it keeps the structure of a value: a failure is a value, too
	Document   bool // a program reads all of it: what is no return is a document, too
}

// FormOf returns the form of an outputter; "" means the standard one. A name that is none
// has the zero Form.
func FormOf(name string) Form { return rowOf(name).Form }

// rowOf returns the row of that name, the zero row for none.
func rowOf(name string) row {
	if name = cmp.Or(name, standard); name == "text" {
		name = "txt" // as Salt takes it
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

// New returns the outputter of that name; "" means the standard one, nested. Another name is an
// error with a hint that lists the known ones.
func New(name string, opt Options) (Outputter, error) {
	if o := rowOf(name); o.format != nil {
		return Outputter{o.name, opt, o.format}, nil
	}
	err := fmt.Errorf("%w: %q", ErrUnknown, name)
	return Outputter{}, salt.WithHint(err, "the outputters are "+strings.Join(Names(), ", "))
}

// Format returns the text for data, without blanks and line breaks at its end;
// "" if there is nothing to print. An error means that data holds a Go type
// which is no value, or nests too deeply.
func (o Outputter) Format(data any) (string, error) {
	plain, err := value.Plain(data)
	if err != nil {
		return "", fmt.Errorf("format as %s: %w", o.name, err)
	}
	text, err := o.format(o.opt, plain)
	if err != nil {
		return "", fmt.Errorf("format as %s: %w", o.name, err)
	}
	return trimRight(text), nil
}

// trimRight drops the trailing characters that Python takes for white space.
func trimRight(s string) string { return strings.TrimRightFunc(s, isSpace) }

// indentOr returns the width of a level, or width if none was asked for.
func (o Options) indentOr(width int) int {
	if o.Indent == nil {
		return width
	}
	return *o.Indent
}

// sortedKeys returns the keys of m in the order in which they are printed.
func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
